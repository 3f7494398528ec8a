// One subscription, or the one of a queue: where its copies are, its rules with what they did, its settings.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Badge, Card, Check, Confirm, Dialog, Empty, Facts, Field, Form, Icon, Loaded, Page, Stack, Stat, Stats, Tabs, toast, useTab } from "../components.mjs"
import { bytes, count, duration, exact } from "../format.mjs"
import { html } from "../html.mjs"
import { change, go, href } from "../router.mjs"
import { CopyList } from "./copies.mjs"
import { RuleCards } from "./rules.mjs"
import { QUEUE, receiversOf, statesOf } from "./topics.mjs"

export default function SubscriptionPage({ topic, subscription, query }) {
  const answer = usePolled(named`topics/${topic}/subscriptions/${subscription}`)
  const crumbs = [["Topics and queues", href(["topics"])], [topic, href(["topics", topic])]]
  const actions = html`
    <button type="button" onClick=${() => change({ delete: "1" })}>Delete</button>
    <a class="button primary" href=${href(["topics", topic, subscription, "rules"])}><${Icon} name="plus" />Rule</a>
  `
  const remove = async () => {
    await ask(named`topics/${topic}/subscriptions/${subscription}`, { method: "DELETE" })
    toast(`Subscription ${subscription} is deleted.`)
    go(href(["topics", topic]))
  }
  return html`<${Page} title=${subscription} crumbs=${crumbs} lead=${html`A subscription of <bdi>${topic}</bdi>.`} actions=${actions}>
    <${Loaded} of=${answer}>${(data) => html`<${Subscribed} of=${data} query=${query} reload=${answer.reload} />`}</${Loaded}>
    ${query.has("delete") &&
    html`<${Confirm} title="Delete this subscription?" verb="Delete" word=${subscription} onConfirm=${remove} onClose=${() => change({ delete: null })}>
      <p>Its rules, the messages that wait in it and its dead letters will be gone. The topic keeps its messages.</p>
    </${Confirm}>`}
  </${Page}>`
}

export function Subscribed({ of, query, reload }) {
  const isQueue = of.name === QUEUE
  const tabs = [
    ...(isQueue ? [] : [{ id: "rules", title: "Rules", count: of.rules.length }]),
    { id: "waiting", title: "Messages in it" },
    { id: "settings", title: "Settings" },
  ]
  const tab = useTab(tabs)
  const letters = href(["dead-letters", of.topic, of.name])
  const { counters } = of
  return html`
    ${of.error && html`<p class="stale"><bdi>${of.error}</bdi></p>`}
    <${Card} title="Where its messages are" note=${receiversOf(of)} actions=${html`<a href=${letters}>Dead letters</a>`}>
      <${Stack} title="Copies by state" of=${statesOf(of, { to: letters })} />
    </${Card}>
    <${Stats}>
      <${Stat} label="Taken" value=${count(counters.decided)} note="since it was opened" />
      <${Stat} label="Delivered" value=${count(counters.delivered)} note=${bytes(counters.delivered_bytes)} />
      <${Stat} label="Completed" value=${count(counters.completed)} />
      <${Stat} label="Given back" value=${count(counters.released)} note="to be tried again" />
      <${Stat} label="Expired" value=${count(counters.expired)} />
      <${Stat} label="Keeps on disk" value=${bytes(of.held_back_bytes)} note=${of.pins === null ? "nothing is held back" : `from offset ${exact(of.pins)}`} />
    </${Stats}>
    <${Tabs} tabs=${tabs} />
    ${tab === "rules" && html`<${RuleCards} topic=${of.topic} subscription=${of} query=${query} reload=${reload} />`}
    ${tab === "waiting" && html`<${CopyList} topic=${of.topic} subscription=${of.name} query=${query} empty=${html`<${Empty} title="Nothing waits"><p>What is settled is gone from here; the topic's <a href=${href(["messages", of.topic])}>messages</a> stay until retention.</p></${Empty}>`} />`}
    ${tab === "settings" && html`<${Settings} of=${of} query=${query} reload=${reload} />`}
  `
}

const STATES = { active: ["good", "active"], "receive-disabled": ["warn", "nobody may receive"], disabled: ["bad", "disabled"] }

function Settings({ of, query, reload }) {
  const { settings } = of
  const [tone, text] = STATES[settings.status] ?? ["plain", settings.status]
  const actions = html`<button type="button" onClick=${() => change({ edit: "1" })}>Change</button>`
  const save = async (form) => {
    await ask(named`topics/${of.topic}/subscriptions/${of.name}`, { method: "PUT", query: { only: "existing" }, body: settingsOf(form) })
    toast("The settings are changed.")
    reload()
  }
  const [form, setForm] = useState(null)
  return html`<${Card} title="How it is delivered" actions=${actions}>
    <${Facts}
      of=${[
        ["State", html`<${Badge} tone=${tone}>${text}</${Badge}>`],
        ["A receiver holds a message for", duration(settings.lock_ms)],
        ["Attempts before it is a dead letter", exact(settings.max_delivery_count)],
        ["Waits before the next attempt", settings.backoff_ms.length ? settings.backoff_ms.map(duration).join(", ") : "no"],
        ["Messages expire after", settings.default_time_to_live_ms === null ? "never" : duration(settings.default_time_to_live_ms)],
        ["Expired messages", settings.dead_letter_on_expiration ? "become dead letters" : "are gone"],
        ["Messages that a rule fails for", of.dead_letter_on_errors ? "become dead letters" : "are not taken"],
        ["Sessions", settings.requires_session ? "required" : "no"],
        ["Forwards to", of.forward_to ? html`<a href=${href(["topics", of.forward_to])}><bdi>${of.forward_to}</bdi></a>` : "nowhere"],
        ["Dead letters go to", settings.forward_dead_letters_to ? html`<bdi>${settings.forward_dead_letters_to}</bdi>` : "they stay here"],
        ["Deleted without a receiver after", settings.auto_delete_on_idle_ms === null ? "never" : duration(settings.auto_delete_on_idle_ms)],
        ["In force from offset", exact(of.in_force_from)],
        ["Note", html`<bdi>${settings.user_metadata || "–"}</bdi>`],
      ]}
    />
    ${query.has("edit") &&
    html`<${Dialog} title="Settings" onClose=${() => change({ edit: null })}>
      <${Form} verb="Change" onSubmit=${() => save(form.closest("form"))} onDone=${() => change({ edit: null })}>
        <div class="fields" ref=${setForm}>${settingFields(of)}</div>
      </${Form}>
    </${Dialog}>`}
  </${Card}>`
}

/** The fields that a person sets most, of a subscription or a new one. */
export function settingFields(of) {
  const settings = of?.settings ?? { lock_ms: 60_000, max_delivery_count: 10, default_time_to_live_ms: null, dead_letter_on_expiration: false }
  return html`
    <div class="row">
      <${Field} label="A receiver holds a message for (s)">${(props) => html`<input ...${props} name="lock" type="number" min="1" max="43200" step="any" defaultValue=${settings.lock_ms / 1000} />`}</${Field}>
      <${Field} label="Attempts">${(props) => html`<input ...${props} name="attempts" type="number" min="1" max="2000" defaultValue=${settings.max_delivery_count} />`}</${Field}>
    </div>
    <${Field} label="Messages expire after (s)" hint="Empty: never.">${(props) => html`<input ...${props} name="live" type="number" min="0.001" step="any" defaultValue=${settings.default_time_to_live_ms === null ? "" : settings.default_time_to_live_ms / 1000} />`}</${Field}>
    <${Check} name="expired" label="Expired messages become dead letters" defaultChecked=${settings.dead_letter_on_expiration} />
    ${of?.name !== QUEUE && html`<${Check} name="failed" label="Messages that a rule fails for become dead letters" defaultChecked=${of?.dead_letter_on_errors ?? false} />`}
  `
}

/** The body of a request from `settingFields`. */
export function settingsOf(form) {
  const given = new FormData(form)
  const live = given.get("live")
  return {
    ...(form.elements.failed ? { dead_letter_on_errors: given.has("failed") } : {}),
    settings: {
      lock_ms: Math.round(1000 * Number(given.get("lock"))),
      max_delivery_count: Number(given.get("attempts")),
      default_time_to_live_ms: live ? Math.round(1000 * Number(live)) : null,
      dead_letter_on_expiration: given.has("expired"),
    },
  }
}
