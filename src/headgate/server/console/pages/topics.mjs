// Topics and queues, and a new one.

import { useMemo, useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Badge, Card, Dialog, Empty, Field, Form, Icon, Loaded, Page, Stat, Stats, Table, toast } from "../components.mjs"
import { count, counted } from "../format.mjs"
import { html } from "../html.mjs"
import { change, go, href } from "../router.mjs"

/** The subscription that a queue has, and no other. */
export const QUEUE = "$queue"

/** The address of the page of a subscription; that of a queue is the queue's. */
export const placeOf = (topic, subscription) => (subscription === QUEUE ? ["topics", topic] : ["topics", topic, subscription])

/** "queue jobs", "subscription red of orders". */
export const titleOf = (topic, subscription) => (subscription === QUEUE ? topic : `${topic} / ${subscription}`)

export default function Topics({ query }) {
  const topics = usePolled("topics")
  const subscriptions = usePolled("subscriptions")
  const create = html`<button type="button" class="primary" onClick=${() => change({ new: "1" })}><${Icon} name="plus" />Create</button>`
  const lead = "A topic gives each subscription the messages that its rules select; a queue gives each message to one receiver."
  return html`<${Page} title="Topics and queues" lead=${lead} actions=${create}>
    <${Loaded} of=${topics}>
      ${(rows) => html`
        ${rows.length > 0 && html`<${Sums} rows=${rows} />`}
        <${Card} isFlush><${TopicTable} rows=${rows} subscriptions=${subscriptions.data ?? []} create=${create} /></${Card}>
      `}
    </${Loaded}>
    ${query.has("new") && html`<${Create} onClose=${() => change({ new: null })} />`}
  </${Page}>`
}

function Sums({ rows }) {
  const sum = (of) => rows.reduce((whole, row) => whole + (row.error ? 0 : of(row)), 0)
  const failures = sum((row) => row.counters.rule_failures)
  const dead = sum((row) => row.dead_lettered)
  return html`<${Stats}>
    <${Stat} label="Waiting for a receiver" value=${count(sum((row) => row.active))} />
    <${Stat} label="With a receiver" value=${count(sum((row) => row.locked))} />
    <${Stat} label="Waiting for their time" value=${count(sum((row) => row.waiting))} />
    <${Stat} label="Put aside" value=${count(sum((row) => row.deferred))} />
    <${Stat} label="Dead letters" to=${href(["dead-letters"])} value=${count(dead)} tone=${dead ? "warn" : undefined} />
    <${Stat} label="Rule failures" value=${count(failures)} tone=${failures ? "bad" : undefined} note="since the topics were opened" />
  </${Stats}>`
}

function TopicTable({ rows, subscriptions, create }) {
  const of = useMemo(() => Map.groupBy ? Map.groupBy(subscriptions, (row) => row.topic) : grouped(subscriptions), [subscriptions])
  const isQueue = (row) => of.get(row.name)?.some((one) => one.name === QUEUE) ?? false
  const columns = [
    {
      id: "name",
      title: "Name",
      isWide: true,
      value: (row) => row.name,
      render: (row) => html`<a href=${href(["topics", row.name])}><bdi>${row.name}</bdi></a>
        ${row.error && html` <${Badge} tone="bad">damaged</${Badge}><small class="under"><bdi>${row.error}</bdi></small>`}`,
    },
    { id: "kind", title: "Kind", value: (row) => (isQueue(row) ? "queue" : "topic"), render: (row) => (isQueue(row) ? html`<${Badge} tone="info">queue</${Badge}>` : html`<${Badge}>topic</${Badge}>`) },
    {
      id: "subscriptions",
      title: "Subscriptions",
      isNumber: true,
      value: (row) => (isQueue(row) ? null : row.subscriptions),
    },
    { id: "active", title: "Waiting", isNumber: true, value: (row) => row.active },
    { id: "locked", title: "With receivers", isNumber: true, value: (row) => row.locked },
    {
      id: "dead",
      title: "Dead letters",
      isNumber: true,
      value: (row) => row.dead_lettered,
      render: (row) => (row.dead_lettered ? html`<a href=${href(["dead-letters"], { q: row.name })}>${count(row.dead_lettered)}<span class="sr-only"> dead letters of <bdi>${row.name}</bdi></span></a>` : count(row.dead_lettered)),
    },
    {
      id: "failures",
      title: "Rule failures",
      isNumber: true,
      value: (row) => row.counters?.rule_failures,
      render: (row) => (row.counters?.rule_failures ? html`<${Badge} tone="bad">${count(row.counters.rule_failures)}</${Badge}>` : count(row.counters?.rule_failures)),
    },
  ]
  return html`<${Table}
    caption="topics and queues"
    columns=${columns}
    rows=${rows}
    keyOf=${(row) => row.name}
    empty=${html`<${Empty} title="No topics yet"><p>A stream becomes a topic when it gets subscriptions. Clients of Service Bus find topics and queues here.</p>${create}</${Empty}>`}
  />`
}

function grouped(rows) {
  const found = new Map()
  for (const row of rows) found.set(row.topic, [...(found.get(row.topic) ?? []), row])
  return found
}

function Create({ onClose }) {
  const [name, setName] = useState("")
  const [kind, setKind] = useState("topic")
  const create = async () => {
    if (kind === "queue") await ask(named`entities/${name}`, { method: "PUT", query: { only: "new" }, body: { settings: { kind: "queue" } } })
    else await ask(named`topics/${name}`, { method: "PUT", query: { only: "new" }, body: {} })
    toast(`${kind === "queue" ? "Queue" : "Topic"} ${name} is created.`)
    go(href(["topics", name]))
  }
  return html`<${Dialog} title="Create a topic or a queue" onClose=${onClose}>
    <${Form} verb="Create" onSubmit=${create} isReady=${name.trim() !== ""}>
      <fieldset class="choice">
        <legend>Kind</legend>
        ${[
          ["topic", "Topic", "each subscription gets what its rules select; a stream of this name becomes the topic"],
          ["queue", "Queue", "each message goes to one receiver"],
        ].map(
          ([id, title, text]) => html`<label class="check"><input type="radio" name="kind" value=${id} checked=${kind === id} onChange=${() => setKind(id)} /><span>${title}<small class="under">${text}</small></span></label>`,
        )}
      </fieldset>
      <${Field} label="Name">
        ${(props) => html`<input ...${props} required value=${name} autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value)} />`}
      </${Field}>
    </${Form}>
  </${Dialog}>`
}

/** The states of copies as parts of a bar. */
export function statesOf(row, { to } = {}) {
  return [
    { label: "waiting", value: row.active, tone: "info" },
    { label: "with a receiver", value: row.locked, tone: "good" },
    { label: "for later", value: row.waiting, tone: "plain" },
    { label: "put aside", value: row.deferred ?? 0, tone: "warn" },
    { label: "dead letters", value: row.dead_lettered ?? 0, tone: "bad", to },
  ]
}

export const receiversOf = (row) => (row.receivers ? counted(row.receivers, "receiver") : "no receiver")
