"""One run's page: what it shows, for whom, and that nothing breaks it."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from django.contrib.contenttypes.models import ContentType
from django.urls import reverse

from django_workflows import RetryPolicy, cancel, payloads, rerun, send_message, step, workflow
from django_workflows.models import WorkflowRun
from django_workflows.testing import advance, run_until_idle
from tests.admin.conftest import run_page
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


def content(client, run, query=""):
    response = client.get(run_page(run) + query)
    assert response.status_code == 200
    return response.content.decode()


def test_it_tells_what_a_run_waits_for_and_how_far_it_is(viewer, waiting):
    run = waiting.start()
    run_until_idle(run)
    page = content(viewer, run)
    assert "Waits for message “go”, for 0\xa0minutes so far." in page
    assert "There is no time limit" in page
    assert 'value="1.0" max="4.0"' in page


def test_the_inbox_tells_pending_from_consumed_and_links_both_ways(viewer, waiting):
    run = waiting.start()
    send_message(run, "other", {"n": 1})
    taken = send_message(run, "go", {"n": 2})
    run_until_idle(run)
    step = run.steps.get(kind="message")
    page = content(viewer, run)
    assert f'href="?step={step.seq}#step-{step.seq}"' in page
    assert f'href="#message-{taken.pk}"' in page
    assert page.index("Pending") < page.index("other") < page.index("Consumed")


def test_each_failed_attempt_of_a_step_is_shown_escaped(viewer, flaky):
    for _ in range(3):
        run_until_idle(flaky)
        advance(timedelta(minutes=5))
    flaky.refresh_from_db()
    page = content(viewer, flaky)
    assert flaky.status == "failed"
    assert "3 failed attempts" in page
    assert page.count("the network is away &lt;b&gt;again&lt;/b&gt;") >= 4
    assert "<b>again</b>" not in page
    assert "Traceback" in page


def test_a_step_keeps_its_last_20_failed_attempts_cut(viewer):
    def fail():
        raise ValueError("x" * 5000)

    @workflow(name="tests.stubborn")
    def stubborn(ctx):
        ctx.step("try", step(fail, retry=RetryPolicy(max_attempts=25, jitter=False)))

    run = stubborn.start()
    for _ in range(25):
        run_until_idle(run)
        advance(timedelta(minutes=5))
    run.refresh_from_db()
    details = payloads.load_json(run.steps.get().details)
    assert [told["number"] for told in details["attempts"]] == list(range(6, 26))
    assert {len(told["message"]) for told in details["attempts"]} == {500}
    assert content(viewer, run).count("<li value=") == 20


@pytest.mark.parametrize(
    "workflow_id", ["order/42", "a_b", "..", "über#?&%", "<script>alert(1)</script>", "a b", "日本"]
)
def test_odd_workflow_ids_work_in_every_link(viewer, waiting, workflow_id):
    run = waiting.using(workflow_id=workflow_id).start()
    run_until_idle(run)
    page = content(viewer, run)
    assert "<script>alert(1)" not in page
    found = viewer.get(reverse("admin:django_workflows_workflowrun_changelist"), {"q": workflow_id})
    assert [row.pk for row in found.context["cl"].result_list] == [run.pk]
    assert f"?q={quote(workflow_id, safe='')}" in page


def test_a_view_only_member_of_staff_sees_no_button(viewer, waiting):
    run = waiting.start()
    run_until_idle(run)
    page = content(viewer, run)
    assert "wf-action-" not in page
    assert "<form" not in page.partition('id="content-main"')[2].partition("wf-live")[0]


def test_the_page_needs_the_permission_to_view(make_user, sign_in, waiting):
    run = waiting.start()
    assert sign_in(make_user()).get(run_page(run)).status_code == 403
    assert sign_in(make_user(is_staff=False)).get(run_page(run)).status_code == 302


def test_posting_to_the_page_is_refused(boss, waiting):
    assert boss.post(run_page(waiting.start())).status_code == 403


def test_an_unknown_run_leads_back_to_the_list_with_a_word(viewer):
    for key in ("01890000-0000-7000-8000-000000000000", "nonsense"):
        url = reverse("admin:django_workflows_workflowrun_change", args=[key])
        response = viewer.get(url, follow=True)
        assert response.redirect_chain[-1][0] == listing_url()
        assert "There is no workflow run" in response.content.decode()


def listing_url():
    return reverse("admin:django_workflows_workflowrun_changelist")


def test_large_payloads_are_cut_with_their_size_and_can_be_downloaded(viewer, settings):
    settings.DJANGO_WORKFLOWS = {"MAX_PAYLOAD_BYTES": 20_000_000}

    @workflow(name="tests.large")
    def large(ctx):
        data = ctx.wait_for_message("data").data
        return ctx.step("double", lambda: {"log": data["log"]})

    run = large.start()
    send_message(run, "data", {"log": "é<b>" * 600_000})
    run_until_idle(run)
    assert run.status == "completed"
    response = viewer.get(run_page(run))
    page = response.content.decode()
    assert len(response.content) < 1_000_000
    assert "MB in all" in page
    url = reverse("admin:django_workflows_workflowrun_data", args=[run.pk, "result"])
    whole = viewer.get(url)
    assert (
        whole.headers["Content-Disposition"] == f'attachment; filename="run-{run.pk}-result.json"'
    )
    assert whole.json() == {"log": "é<b>" * 600_000}
    assert viewer.get(url.replace("result", "claim_token")).status_code == 404


def test_text_that_no_page_can_carry_is_shown_as_escapes(viewer):
    @workflow(name="tests.odd")
    def odd(ctx, text):
        ctx.step("fail", fail, text)

    def fail(text):
        raise ValueError(text)

    text = "a\x00b\ud800c😀"
    run = odd.start(text=text)
    for _ in range(12):
        run_until_idle(run)
        advance(timedelta(minutes=5))
    page = content(viewer, run)
    assert "a\\u0000b\\ud800c😀" in page


def test_the_subject_is_linked_and_a_gone_one_is_named(boss, waiting):
    from testproject.shop.models import Product

    product = Product.objects.create(name="Teapot & more", price=10)
    thing = Thing.objects.create(name="thing")
    run = waiting.using(subject=product).start()
    assert reverse("admin:shop_product_change", args=[product.pk]) in content(boss, run)
    assert "Teapot &amp; more" in content(boss, run)
    other = waiting.using(subject=thing).start()
    assert "<dd>thing</dd>" in content(boss, other)
    thing.delete()
    assert "gone" in content(boss, other)
    ContentType.objects.clear_cache()


def test_parents_children_and_reruns_are_linked(viewer, flaky):
    @workflow(name="tests.child")
    def child(ctx):
        ctx.wait_for_message("never")

    @workflow(name="tests.parent")
    def parent(ctx):
        ctx.run_child(child, {})

    run = parent.start()
    run_until_idle()
    born = WorkflowRun.objects.get(parent=run)
    assert run_page(born) in content(viewer, run)
    assert run_page(run) in content(viewer, born)
    cancel(flaky)
    again = rerun(flaky)
    assert run_page(again) in content(viewer, flaky)
    assert run_page(flaky) in content(viewer, again)


def test_a_run_of_a_version_that_no_live_worker_knows_says_so(viewer, waiting):
    assert "No live worker has registered tests.waiting, version 1" in content(
        viewer, waiting.start()
    )


def test_a_long_record_is_shown_in_parts(viewer):
    @workflow(name="tests.long")
    def long(ctx):
        for n in range(250):
            ctx.step(f"step-{n:03}", int)

    run = long.start()
    run_until_idle(run)
    newest = content(viewer, run)
    assert "step-249" in newest
    assert "step-100" not in newest
    assert "Earlier steps" in newest
    middle = content(viewer, run, "?step=120")
    assert "step-120" in middle
    assert "Later steps" in middle
    assert "step-000" in content(viewer, run, "?step=0")
    assert content(viewer, run, "?step=nonsense")


def test_a_page_takes_15_queries_at_most(
    make_user, sign_in, waiting, django_assert_max_num_queries
):
    client = sign_in(
        make_user("view_workflowrun", "cancel_workflowrun", "send_message", "view_workflowstep")
    )
    run = waiting.using(subject=Thing.objects.create(name="x")).start()
    send_message(run, "go", 1)
    for finished in (False, True):
        if finished:
            run_until_idle(run)
        with django_assert_max_num_queries(15):
            content(client, run)


def test_no_script_or_style_stands_in_the_page_itself(boss, waiting):
    run = waiting.start()
    run_until_idle(run)
    page = content(boss, run)
    assert "style=" not in page.partition("wf-live-bar")[2]
    assert " onclick" not in page
    assert all("src=" in tag.partition(">")[0] for tag in page.split("<script")[1:])


def test_times_are_shown_without_time_zones_too(boss, waiting, settings):
    settings.USE_TZ = False
    run = waiting.start(timeout=3600)
    run_until_idle(run)
    assert "It goes on at" in content(boss, run)
    send_message(run, "go", 1)
    run_until_idle(run)
    assert "Completed" in content(boss, run)


def test_links_hold_where_numbers_are_written_with_separators(boss, settings):
    settings.USE_THOUSAND_SEPARATOR = True

    @workflow(name="tests.many")
    def many(ctx):
        for _ in range(1300):
            ctx.now()
        ctx.wait_for_message("go")

    run = many.start()
    run_until_idle(run)
    page = content(boss, run)
    assert 'id="step-1250"' in page
    assert 'href="?step=1151"' in page
    assert "1,2" not in page.partition("<svg")[0].partition("wf-timeline")[2]


def test_attempts_are_sealed_as_the_codec_wants_all_that_people_said(boss, settings, flaky):
    settings.DJANGO_WORKFLOWS = {"CODEC": "tests.admin.checks.Reverse"}
    WorkflowRun.objects.filter(pk=flaky.pk).update(input={}, state={})
    run_until_idle(flaky)
    details = flaky.steps.get().details
    assert "the network is away" not in details
    assert "the network is away" in content(boss, flaky)


def test_a_payload_too_large_to_decode_is_offered_as_a_download_where_a_codec_hides_it(
    boss, settings, waiting
):
    settings.DJANGO_WORKFLOWS = {"CODEC": "tests.admin.checks.Reverse"}
    run = waiting.start(name="x" * 200)
    message = send_message(run, "large", "y" * 50_000)
    page = content(boss, run)
    assert "y" * 100 not in page
    url = reverse("admin:django_workflows_workflowmessage_data", args=[message.pk])
    assert boss.get(url).json() == "y" * 50_000


def test_a_payload_that_cannot_be_decoded_any_more_breaks_nothing(boss, settings, waiting):
    run = waiting.start()
    send_message(run, "go", {"secret": 1})
    run_until_idle(run)
    settings.DJANGO_WORKFLOWS = {"CODEC": "tests.admin.checks.Picky"}
    page = content(boss, run)
    assert "secret" in page
    for model in ("workflowrun", "workflowmessage", "workflowstep", "approvalgate"):
        url = reverse(f"admin:django_workflows_{model}_changelist")
        assert (
            boss.get(url, {"show": "decided"} if model == "approvalgate" else {}).status_code == 200
        )
