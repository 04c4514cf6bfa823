// A form marked `data-wf-once` is sent once, however often its buttons are clicked.
(() => {
  "use strict";

  const mark = (form, sent) => {
    form.toggleAttribute("data-wf-sent", sent);
    for (const button of form.querySelectorAll("button, input[type=submit]")) {
      // Not `disabled`: the button that was clicked has to be among what is sent.
      button.setAttribute("aria-disabled", String(sent));
    }
  };

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.hasAttribute("data-wf-once")) return;
    if (form.hasAttribute("data-wf-sent")) event.preventDefault();
    else mark(form, true);
  });

  // Back from the next page: the form may be sent again.
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-wf-sent]")) mark(form, false);
  });
})();
