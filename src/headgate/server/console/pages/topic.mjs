// One topic: its subscriptions, rules, and every version of them; or one queue.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, useAsked, usePolled } from "../api.mjs"
import { Badge, Card, Check, Confirm, Dialog, Empty, Facts, Field, Form, Icon, Loaded, Page, Stack, Stat, Stats, Table, Tabs, Time, UnreadableBodies, toast, useTab } from "../components.mjs"
import { count, counted, exact } from "../format.mjs"
import { html } from "../html.mjs"
import { change, go, href } from "../router.mjs"
import { RuleName, filterOf, failuresOf } from "./rules.mjs"
import { Subscribed, settingFields, settingsOf } from "./subscription.mjs"
import { QUEUE, placeOf, receiversOf, statesOf } from "./topics.mjs"

export default function TopicPage({ topic, query }) {
  const answer = usePolled(named`topics/${topic}`)
  const queue = answer.data?.subscriptions.find((one) => one.name === QUEUE)
  const crumbs = [["Topics and queues", href(["topics"])]]
  const remove = html`<button type="button" onClick=${() => change({ delete: "1" })}>Delete</button>`
  const look = html`<a class="button" href=${href(["messages", topic])}>Messages</a>`
  const create = html`<button type="button" class="primary" onClick=${() => change({ new: "1" })}><${Icon} name="plus" />Subscription</button>`
  return html`<${Page} title=${topic} crumbs=${crumbs} lead=${queue ? "A queue." : undefined} actions=${html`${look}${remove}${answer.data && !queue && create}`}>
    <${Loaded} of=${answer}>
      ${(data) => (queue ? html`<${Subscribed} of=${queue} query=${query} reload=${answer.reload} />` : html`<${Topic} of=${data} create=${create} />`)}
    </${Loaded}>
    ${query.has("new") && html`<${Create} topic=${topic} onClose=${() => change({ new: null })} />`}
    ${query.has("delete") && html`<${Remove} topic=${topic} isQueue=${Boolean(queue)} onClose=${() => change({ delete: null })} />`}
  </${Page}>`
}

function Topic({ of: topic, create }) {
  const rules = topic.subscriptions.flatMap((one) => one.rules.map((rule) => ({ ...rule, subscription: one.name })))
  const failures = topic.counters.rule_failures
  const tabs = [
    { id: "subscriptions", title: "Subscriptions", count: topic.subscriptions.length },
    { id: "rules", title: "Rules", count: rules.length },
    { id: "history", title: "Changes" },
  ]
  const tab = useTab(tabs)
  return html`
    ${topic.error && html`<p class="stale"><bdi>${topic.error}</bdi></p>`}
    <${Stats}>
      <${Stat} label="Messages decided" value=${count(topic.counters.messages_decided)} note=${topic.undecided ? `${count(topic.undecided)} not yet` : "since it was opened"} />
      <${Stat} label="Waiting for a receiver" value=${count(topic.active)} />
      <${Stat} label="With a receiver" value=${count(topic.locked)} />
      <${Stat} label="Dead letters" value=${count(topic.dead_lettered)} tone=${topic.dead_lettered ? "warn" : undefined} to=${href(["dead-letters"], { q: topic.name })} />
      <${Stat} label="Rule failures" value=${count(failures)} tone=${failures ? "bad" : undefined} />
    </${Stats}>
    <${UnreadableBodies} of=${topic.counters} />
    <${Tabs} tabs=${tabs} />
    ${tab === "subscriptions" && html`<${Subscriptions} topic=${topic} create=${create} />`}
    ${tab === "rules" &&
    html`<${Card} isFlush>
      <${Table} caption="rules" columns=${ruleColumns(topic.name)} rows=${rules} keyOf=${(row) => `${row.subscription} ${row.name}`} empty=${html`<${Empty} title="No rules"><p>Subscriptions without a rule get nothing.</p></${Empty}>`} />
    </${Card}>`}
    ${tab === "history" && html`<${History} topic=${topic} />`}
  `
}

function Subscriptions({ topic, create }) {
  if (!topic.subscriptions.length) {
    return html`<${Card}><${Empty} title="Nobody is subscribed"><p>Messages are kept in the stream; a subscription gets those from now on that its rules select.</p>${create}</${Empty}></${Card}>`
  }
  return html`<div class="grid two">
    ${topic.subscriptions.map((one) => {
      const failures = failuresOf(one.rules)
      return html`<${Card}
        key=${one.name}
        title=${html`<a href=${href(placeOf(topic.name, one.name))}><bdi>${one.name}</bdi></a>`}
        note=${`${counted(one.rules.length, "rule")}, ${receiversOf(one)}`}
        actions=${html`${failures > 0 && html`<${Badge} tone="bad" title="Filters or actions that failed">${counted(failures, "failure")}</${Badge}>`}${one.settings.status !== "active" && html`<${Badge} tone="warn">${one.settings.status}</${Badge}>`}`}
      >
        <${Stack} title=${`Copies of ${one.name}`} of=${statesOf(one, { to: href(["dead-letters", topic.name, one.name]) })} />
        <ul class="rule-lines">
          ${one.rules.slice(0, 3).map(
            (rule) => html`<li><${RuleName} topic=${topic.name} subscription=${one.name} rule=${rule.name} /> <code><bdi>${filterOf(rule)}</bdi></code></li>`,
          )}
          ${one.rules.length > 3 && html`<li class="note">and ${count(one.rules.length - 3)} more</li>`}
          ${one.rules.length === 0 && html`<li class="note">${one.fall_through ? "gets what no other subscription gets" : "no rule: it gets nothing"}</li>`}
          ${one.forward_to && html`<li class="note">forwards to <a href=${href(["topics", one.forward_to])}><bdi>${one.forward_to}</bdi></a></li>`}
        </ul>
      </${Card}>`
    })}
  </div>`
}

const ruleColumns = (topic) => [
  { id: "subscription", title: "Subscription", value: (row) => row.subscription, render: (row) => html`<a href=${href(placeOf(topic, row.subscription))}><bdi>${row.subscription}</bdi></a>` },
  { id: "name", title: "Rule", value: (row) => row.name, render: (row) => html`<${RuleName} topic=${topic} subscription=${row.subscription} rule=${row.name} />` },
  {
    id: "filter",
    title: "Filter and action",
    isWide: true,
    value: (row) => `${filterOf(row)} ${row.action ?? ""}`,
    render: (row) => html`<code class="filter-text-shown"><bdi>${filterOf(row)}</bdi></code>${row.action && html`<code class="under filter-text-shown"><bdi>${row.action}</bdi></code>`}`,
  },
  { id: "matched", title: "Matched", isNumber: true, value: (row) => row.matched },
  { id: "errors", title: "Errors", isNumber: true, value: (row) => row.errors, render: (row) => html`<${Failures} of=${row.errors} reason=${row.last_failure_reason} />` },
  { id: "actions", title: "Failed actions", isNumber: true, value: (row) => row.failed_actions, render: (row) => html`<${Failures} of=${row.failed_actions} reason=${row.last_failure_reason} />` },
]

const Failures = ({ of, reason }) => (of ? html`<${Badge} tone="bad" title=${reason}>${count(of)}</${Badge}>` : count(of))

function History({ topic }) {
  const history = useAsked(named`topics/${topic.name}/history`)
  const columns = [
    { id: "at", title: "Since", value: (row) => row.at_ms, render: (row) => html`<${Time} ms=${row.at_ms} />` },
    { id: "subscription", title: "Subscription", value: (row) => row.subscription },
    { id: "name", title: "Rule", value: (row) => row.name },
    { id: "filter", title: "Filter", isWide: true, value: (row) => filterOf(row), render: (row) => html`<code class="filter-text-shown"><bdi>${filterOf(row)}</bdi></code>` },
    { id: "from", title: "From offset", isNumber: true, value: (row) => row.from_offset, render: (row) => exact(row.from_offset) },
    { id: "to", title: "Before offset", isNumber: true, value: (row) => row.to_offset, render: (row) => (row.to_offset === null ? "in force" : exact(row.to_offset)) },
  ]
  return html`<${Card} isFlush>
    <${Loaded} of=${history}>
      ${(rows) => html`<${Table} caption="versions of rules" columns=${columns} rows=${rows} keyOf=${(row) => `${row.subscription} ${row.number} ${row.from_offset}`} empty=${html`<${Empty} title="No rule was ever made" />`} />`}
    </${Loaded}>
    <div class="card-foot"><${Facts} of=${Object.entries(topic.limits).map(([name, value]) => [`At most ${name.replaceAll("_", " ")}`, exact(value)])} /></div>
  </${Card}>`
}

function Create({ topic, onClose }) {
  const [name, setName] = useState("")
  const [isWhole, setWhole] = useState(false)
  const create = async (form) => {
    const { settings, ...rest } = settingsOf(form)
    const body = { ...Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null)), settings, ...(isWhole ? {} : { rules: [] }) }
    await ask(named`topics/${topic}/subscriptions/${name}`, { method: "PUT", query: { only: "new" }, body })
    toast(`Subscription ${name} is created.`)
    go(href(["topics", topic, name]))
  }
  const [form, setForm] = useState(null)
  return html`<${Dialog} title="Create a subscription" onClose=${onClose}>
    <${Form} verb="Create" onSubmit=${() => create(form.closest("form"))} isReady=${name.trim() !== ""}>
      <div class="fields" ref=${setForm}>
        <${Field} label="Name">
          ${(props) => html`<input ...${props} required value=${name} autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value)} />`}
        </${Field}>
        <${Check} label="Begin with a rule that takes every message" hint="Otherwise it gets nothing until it has a rule." isChecked=${isWhole} onChange=${setWhole} />
        ${settingFields()}
      </div>
    </${Form}>
  </${Dialog}>`
}

function Remove({ topic, isQueue, onClose }) {
  const remove = async () => {
    await ask(named`topics/${topic}`, { method: "DELETE" })
    toast(`${topic} is a plain stream again.`)
    go(href(["topics"]))
  }
  return html`<${Confirm} title=${isQueue ? "Delete this queue?" : "Delete this topic?"} verb="Delete" word=${topic} onConfirm=${remove} onClose=${onClose}>
    <p>${isQueue ? "What waits in it" : "Its subscriptions, rules and dead letters"} will be gone. The messages stay in <a href=${href(["streams", topic])}>the stream</a>, which is a plain stream then.</p>
  </${Confirm}>`
}
