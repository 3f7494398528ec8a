// One topic of RocketMQ: its queues, and the groups that read them.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Card, Confirm, Dialog, Empty, Field, Form, Loaded, Page, Stat, Stats, Table, toast } from "../components.mjs"
import { bytes, count, counted, exact } from "../format.mjs"
import { html } from "../html.mjs"
import { change, go, href } from "../router.mjs"

export default function MessageTopic({ topic, query }) {
  const answer = usePolled(named`rocketmq/topics/${topic}`)
  const actions = html`
    <button type="button" onClick=${() => change({ delete: "1" })}>Delete</button>
    <button type="button" onClick=${() => change({ queues: "1" })}>Add queues</button>
  `
  const remove = async () => {
    await ask(named`rocketmq/topics/${topic}`, { method: "DELETE" })
    toast(`Topic ${topic} is deleted.`)
    go(href(["rocketmq"], { tab: "topics" }))
  }
  return html`<${Page} title=${topic} crumbs=${[["Topics", href(["rocketmq"], { tab: "topics" })]]} lead="A topic of RocketMQ's clients." actions=${actions}>
    <${Loaded} of=${answer}>${(data) => html`<${Topic} of=${data} />`}</${Loaded}>
    ${query.has("queues") && answer.data && html`<${Queues} of=${answer.data} onDone=${answer.reload} />`}
    ${query.has("delete") &&
    html`<${Confirm} title="Delete this topic?" verb="Delete" word=${topic} onConfirm=${remove} onClose=${() => change({ delete: null })}>
      <p>Its queues and ${answer.data ? `their ${counted(answer.data.messages, "message")}` : "their messages"} will be gone.</p>
    </${Confirm}>`}
  </${Page}>`
}

function Topic({ of: topic }) {
  return html`
    ${topic.error && html`<p class="stale"><bdi>${topic.error}</bdi></p>`}
    <${Stats}>
      <${Stat} label="Messages" value=${count(topic.messages)} />
      <${Stat} label="Size" value=${bytes(topic.size_bytes)} />
      <${Stat} label="For later" value=${count(topic.scheduled)} note="scheduled messages" />
      <${Stat} label="Accepts" value=${count(topic.accepts.length)} note=${topic.accepts.join(", ")} />
    </${Stats}>
    <${Card} title="Queues" isFlush>
      <${Table} id="queues" caption="queues" columns=${QUEUE_COLUMNS} rows=${topic.queues} keyOf=${(row) => row.queue} />
    </${Card}>
    <${Card} title="Groups" note="that read it" isFlush>
      <${Table} id="groups" caption="groups" columns=${GROUP_COLUMNS} rows=${topic.groups} keyOf=${(row) => `${row.group} ${row.queue}`} empty=${html`<${Empty} title="No group has read it yet"><p>A group gets a place when its first member reads.</p></${Empty}>`} />
    </${Card}>
  `
}

const QUEUE_COLUMNS = [
  { id: "queue", title: "Queue", isNumber: true, value: (row) => row.queue },
  { id: "stream", title: "Stream", isWide: true, value: (row) => row.stream, render: (row) => html`<a href=${href(["streams", row.stream])}><bdi>${row.stream}</bdi></a>` },
  { id: "messages", title: "Messages", isNumber: true, value: (row) => row.messages },
  { id: "size", title: "Size", isNumber: true, value: (row) => row.size_bytes, render: (row) => bytes(row.size_bytes) },
  { id: "first", title: "First offset", isNumber: true, value: (row) => row.first_offset, render: (row) => exact(row.first_offset) },
  { id: "next", title: "End", isNumber: true, value: (row) => row.next_offset, render: (row) => exact(row.next_offset) },
  { id: "look", title: "", name: "Messages", value: () => "", render: (row) => html`<a href=${href(["messages", row.stream])}>Messages<span class="sr-only"> of <bdi>${row.stream}</bdi></span></a>` },
]

const GROUP_COLUMNS = [
  { id: "group", title: "Group", isWide: true, value: (row) => row.group, render: (row) => html`<a href=${href(["rocketmq", "groups", row.group])}><bdi>${row.group}</bdi></a>` },
  { id: "queue", title: "Queue", isNumber: true, value: (row) => row.queue },
  { id: "settled", title: "All settled before", isNumber: true, value: (row) => row.committed_offset, render: (row) => exact(row.committed_offset) },
  { id: "lag", title: "Lag", isNumber: true, value: (row) => row.lag },
  { id: "claimed", title: "With members", isNumber: true, value: (row) => row.claimed },
]

function Queues({ of, onDone }) {
  const [queues, setQueues] = useState(String(of.queues.length))
  const close = () => change({ queues: null })
  const add = async () => {
    await ask(named`rocketmq/topics/${of.name}`, { method: "PUT", query: { only: "existing" }, body: { queues: Number(queues) } })
    toast("The queues are there.")
    onDone()
  }
  return html`<${Dialog} title="Add queues" onClose=${close}>
    <${Form} verb="Add" onSubmit=${add} onDone=${close} isReady=${Number(queues) > of.queues.length}>
      <${Field} label="Queues in all" hint="They are never removed.">${(props) => html`<input ...${props} type="number" min=${of.queues.length} max="1000" value=${queues} onInput=${(event) => setQueues(event.target.value)} />`}</${Field}>
    </${Form}>
  </${Dialog}>`
}
