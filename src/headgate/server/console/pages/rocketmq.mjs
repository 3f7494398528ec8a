// Consumer groups of RocketMQ's clients, and the topics that they read.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Badge, Card, Dialog, Empty, Field, Form, Icon, Loaded, Page, Table, Tabs, toast, useTab } from "../components.mjs"
import { bytes, count } from "../format.mjs"
import { html } from "../html.mjs"
import { change, go, href } from "../router.mjs"

const TABS = [
  { id: "groups", title: "Groups" },
  { id: "topics", title: "Topics" },
]

export default function RocketMQ({ query }) {
  const tab = useTab(TABS)
  const word = tab === "groups" ? "group" : "topic"
  const create = html`<button type="button" class="primary" onClick=${() => change({ new: "1" })}><${Icon} name="plus" />Create a ${word}</button>`
  return html`<${Page} title="Consumer groups" lead="Of RocketMQ's clients: the members of a group share its messages." actions=${create}>
    <${Tabs} tabs=${TABS} />
    ${tab === "groups" ? html`<${Groups} create=${create} />` : html`<${Topics} create=${create} />`}
    ${query.has("new") && html`<${Create} key=${word} word=${word} onClose=${() => change({ new: null })} />`}
  </${Page}>`
}

function Groups({ create }) {
  const groups = usePolled("rocketmq/groups")
  return html`<${Loaded} of=${groups}>
    ${(rows) => html`<${Card} isFlush>
      <${Table}
        caption="consumer groups"
        columns=${GROUP_COLUMNS}
        rows=${rows}
        keyOf=${(row) => row.name}
        empty=${html`<${Empty} title="No groups yet"><p>A group is made when its first member connects, or here.</p>${create}</${Empty}>`}
      />
    </${Card}>`}
  </${Loaded}>`
}

const GROUP_COLUMNS = [
  {
    id: "name",
    title: "Group",
    isWide: true,
    value: (row) => row.name,
    render: (row) => html`<a href=${href(["rocketmq", "groups", row.name])}><bdi>${row.name}</bdi></a>
      ${!row.enabled && html` <${Badge} tone="warn">disabled</${Badge}>`}${row.fifo && html` <${Badge}>in order</${Badge}>`}
      ${row.error && html` <${Badge} tone="bad">damaged</${Badge}><small class="under"><bdi>${row.error}</bdi></small>`}`,
  },
  { id: "members", title: "Members", isNumber: true, value: (row) => row.members },
  { id: "queues", title: "Queues", isNumber: true, value: (row) => row.queues },
  { id: "lag", title: "Lag", isNumber: true, value: (row) => row.lag },
  { id: "claimed", title: "With members", isNumber: true, value: (row) => row.claimed },
  { id: "available", title: "Came back", isNumber: true, value: (row) => row.available },
  { id: "dead", title: "Dead letters", isNumber: true, value: (row) => row.dead_letters, render: (row) => (row.dead_letters ? html`<a href=${deadLettersOf(row.name)}>${count(row.dead_letters)}<span class="sr-only"> dead letters of <bdi>${row.name}</bdi></span></a>` : count(row.dead_letters)) },
]

/** The page of the dead letters of a group. */
export const deadLettersOf = (group) => href(["rocketmq", "groups", group, "dead-letters"])

function Topics({ create }) {
  const topics = usePolled("rocketmq/topics")
  return html`<${Loaded} of=${topics}>
    ${(rows) => html`<${Card} isFlush>
      <${Table}
        caption="topics of RocketMQ"
        columns=${TOPIC_COLUMNS}
        rows=${rows}
        keyOf=${(row) => row.name}
        empty=${html`<${Empty} title="No topics yet"><p>Every stream is a topic with one queue; here one with several can be made.</p>${create}</${Empty}>`}
      />
    </${Card}>`}
  </${Loaded}>`
}

const TOPIC_COLUMNS = [
  {
    id: "name",
    title: "Topic",
    isWide: true,
    value: (row) => row.name,
    render: (row) => html`<a href=${href(["rocketmq", "topics", row.name])}><bdi>${row.name}</bdi></a>${row.error && html` <${Badge} tone="bad">damaged</${Badge}><small class="under"><bdi>${row.error}</bdi></small>`}`,
  },
  { id: "queues", title: "Queues", isNumber: true, value: (row) => row.queues },
  { id: "messages", title: "Messages", isNumber: true, value: (row) => row.messages },
  { id: "size", title: "Size", isNumber: true, value: (row) => row.size_bytes, render: (row) => bytes(row.size_bytes) },
  { id: "scheduled", title: "For later", isNumber: true, value: (row) => row.scheduled },
  { id: "accepts", title: "Accepts", value: (row) => (row.accepts ?? []).join(", ") },
]

function Create({ word, onClose }) {
  const [name, setName] = useState("")
  const [queues, setQueues] = useState("4")
  const create = async () => {
    const body = word === "topic" ? { queues: Number(queues) } : {}
    await ask(named`rocketmq/${`${word}s`}/${name}`, { method: "PUT", query: { only: "new" }, body })
    toast(`${word === "topic" ? "Topic" : "Group"} ${name} is created.`)
    go(href(["rocketmq", `${word}s`, name]))
  }
  return html`<${Dialog} title=${`Create a ${word}`} onClose=${onClose}>
    <${Form} verb="Create" onSubmit=${create} isReady=${name.trim() !== ""}>
      <${Field} label="Name">
        ${(props) => html`<input ...${props} required value=${name} autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value)} />`}
      </${Field}>
      ${word === "topic" &&
      html`<${Field} label="Queues" hint="As many members of a group can read at a time. They can be added later, never removed.">
        ${(props) => html`<input ...${props} type="number" min="1" max="1000" required value=${queues} onInput=${(event) => setQueues(event.target.value)} />`}
      </${Field}>`}
    </${Form}>
  </${Dialog}>`
}
