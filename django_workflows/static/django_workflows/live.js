// Keeps the part of a page that changes up to date, while something is open and somebody looks.
//
//   <div id="wf-live" data-wf-live data-open="yes" data-reload-on="state" data-state="open">
//
// The page is fetched anew and that part replaced. It stops when `data-open` is no longer "yes",
// rests while the tab is hidden, and slows down while nothing changes or the site can't be reached.
// When one of the attributes in `data-reload-on` has changed, what is around the part is out of
// date too, and the page is loaded again.
(() => {
  "use strict";

  const FASTEST = 1500;
  const SLOWEST = 15000;
  const part = () => document.querySelector("[data-wf-live]");
  const toggle = document.querySelector("[data-wf-live-toggle]");
  let pause = FASTEST;
  let timer = 0;
  let under_way = false;

  if (!part()) return;

  const wanted = () => {
    // None is left while the browser goes to another page.
    const shown = part();
    return shown && shown.dataset.open === "yes" && !document.hidden && (!toggle || toggle.checked);
  };

  const plan = () => {
    clearTimeout(timer);
    if (wanted()) timer = setTimeout(refresh, pause);
  };

  // What people have opened, and where they are, survives the replacement.
  const remember = (root) => ({
    open: [...root.querySelectorAll("details[id][open]")].map((details) => details.id),
    focus: root.contains(document.activeElement) ? document.activeElement.id : "",
  });

  const restore = (root, { open, focus }) => {
    for (const id of open) {
      const details = root.querySelector(`details[id="${CSS.escape(id)}"]`);
      if (details) details.open = true;
    }
    const focused = focus && document.getElementById(focus);
    if (focused) focused.focus({ preventScroll: true });
  };

  const needsReload = (before, after) =>
    (before.dataset.reloadOn || "")
      .split(" ")
      .some((name) => name && before.dataset[name] !== after.dataset[name]);

  const say = (text) => {
    const place = document.querySelector("[data-wf-live-status]");
    if (place && text && place.textContent !== text) place.textContent = text;
  };

  const replace = (fresh) => {
    const old = part();
    if (!old) return;
    if (needsReload(old, fresh)) {
      location.reload();
      return;
    }
    if (old.dataset.version && old.dataset.version === fresh.dataset.version) {
      pause = Math.min(pause * 1.3, SLOWEST);
      return;
    }
    const selection = document.getSelection();
    // Text that is being marked would be lost under the hand that marks it.
    if (selection && !selection.isCollapsed && old.contains(selection.anchorNode)) return;
    const kept = remember(old);
    old.replaceWith(document.importNode(fresh, true));
    restore(part(), kept);
    say(part().dataset.say);
    pause = FASTEST;
  };

  const refresh = async () => {
    if (under_way || !wanted()) return;
    under_way = true;
    try {
      const answer = await fetch(location.href, {
        headers: { "X-Requested-With": "live" },
        // To the sign-in page, for instance: the session is over.
        redirect: "error",
        cache: "no-store",
      });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("[data-wf-live]");
      if (fresh) replace(fresh);
    } catch {
      // The site may be restarting: ask again, less and less often.
      pause = Math.min(pause * 2, SLOWEST);
    } finally {
      under_way = false;
      plan();
    }
  };

  document.addEventListener("visibilitychange", () => {
    pause = FASTEST;
    clearTimeout(timer);
    if (!document.hidden) refresh();
  });
  if (toggle) toggle.addEventListener("change", plan);
  plan();
})();
