// One consumer group: its members, and its place in each queue, which can be moved.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Badge, Card, Confirm, Dialog, Empty, Facts, Field, Form, Loaded, Page, Stat, Stats, Table, toast } from "../components.mjs"
import { bytes, count, duration, exact, percent } from "../format.mjs"
import { html } from "../html.mjs"
import { change, go, href } from "../router.mjs"
import { deadLettersOf } from "./rocketmq.mjs"

export default function GroupPage({ group, query }) {
  const answer = usePolled(named`rocketmq/groups/${group}`)
  const actions = html`
    <button type="button" onClick=${() => change({ delete: "1" })}>Delete</button>
    <button type="button" onClick=${() => change({ reset: "1" })}>Move its place</button>
  `
  const remove = async () => {
    await ask(named`rocketmq/groups/${group}`, { method: "DELETE" })
    toast(`Group ${group} is deleted.`)
    go(href(["rocketmq"]))
  }
  return html`<${Page} title=${group} crumbs=${[["Consumer groups", href(["rocketmq"])]]} lead="A consumer group of RocketMQ's clients." actions=${actions}>
    <${Loaded} of=${answer}>${(data) => html`<${Group} of=${data} />`}</${Loaded}>
    ${query.has("reset") && html`<${Reset} group=${group} places=${answer.data?.places ?? []} query=${query} onDone=${answer.reload} />`}
    ${query.has("delete") &&
    html`<${Confirm} title="Delete this group?" verb="Delete" word=${group} onConfirm=${remove} onClose=${() => change({ delete: null })}>
      <p>Its places in all queues will be gone: a new group of this name begins anew. Its dead letters stay.</p>
    </${Confirm}>`}
  </${Page}>`
}

function Group({ of: group }) {
  const { counters, reading } = group
  const spared = reading.bytes_skipped + reading.bytes_read ? reading.bytes_skipped / (reading.bytes_skipped + reading.bytes_read) : null
  return html`
    ${group.error && html`<p class="stale"><bdi>${group.error}</bdi></p>`}
    <${Stats}>
      <${Stat} label="Lag" value=${count(group.lag)} note="messages that are not settled" />
      <${Stat} label="With members" value=${count(group.claimed)} />
      <${Stat} label="Came back" value=${count(group.available)} note="to be tried again" />
      <${Stat} label="Completed" value=${count(counters.completed)} note=${`${count(counters.delivered)} delivered, ${bytes(counters.delivered_bytes)}`} />
      <${Stat} label="Filtered" value=${count(counters.filtered)} note=${spared === null ? undefined : `${percent(spared)} of the bytes not read`} />
      <${Stat} label="Dead letters" value=${count(group.dead_letters)} tone=${group.dead_letters ? "warn" : undefined} to=${deadLettersOf(group.name)} />
    </${Stats}>
    <${Card} title="Places" note="how far it is in each queue" isFlush>
      <${Table} caption="places" columns=${COLUMNS} rows=${group.places} keyOf=${(row) => row.stream} empty=${html`<${Empty} title="It has read nothing yet"><p>A group gets a place in a queue when a member reads it.</p></${Empty}>`} />
    </${Card}>
    <div class="grid two">
      <${Card} title="Members">
        ${group.members.length ? html`<ul class="plain-list">${group.members.map((one) => html`<li><code><bdi>${one}</bdi></code></li>`)}</ul>` : html`<${Empty} title="Nobody is connected"><p>Members are listed while they are connected.</p></${Empty}>`}
      </${Card}>
      <${Card} title="Settings">
        <${Facts}
          of=${[
            ["State", group.enabled ? html`<${Badge} tone="good">enabled</${Badge}>` : html`<${Badge} tone="warn">disabled</${Badge}>`],
            ["Order", group.fifo ? "in order" : "any"],
            ["Attempts", exact(group.max_attempts)],
            ["Waits between attempts", group.backoff_ms.map(duration).join(", ") || "no"],
            ["Begins at", group.start === null ? "what its members say" : String(group.start)],
          ]}
        />
      </${Card}>
    </div>
  `
}

const COLUMNS = [
  { id: "topic", title: "Topic", isWide: true, value: (row) => row.topic, render: (row) => html`<a href=${href(["rocketmq", "topics", row.topic])}><bdi>${row.topic}</bdi></a>${row.error && html`<small class="under"><bdi>${row.error}</bdi></small>`}` },
  { id: "queue", title: "Queue", isNumber: true, value: (row) => row.queue },
  { id: "settled", title: "All settled before", isNumber: true, value: (row) => row.committed_offset, render: (row) => exact(row.committed_offset) },
  { id: "next", title: "End", isNumber: true, value: (row) => row.next_offset, render: (row) => exact(row.next_offset) },
  { id: "lag", title: "Lag", isNumber: true, value: (row) => row.lag },
  { id: "claimed", title: "With members", isNumber: true, value: (row) => row.claimed },
  { id: "available", title: "Came back", isNumber: true, value: (row) => row.available },
  { id: "move", title: "", name: "Move", value: () => "", render: (row) => html`<button type="button" class="quiet" onClick=${() => change({ reset: "1", topic: row.topic, queue: row.queue })}>Move<span class="sr-only"> in queue ${row.queue} of <bdi>${row.topic}</bdi></span></button>` },
]

/** A dialog that moves a group, in one queue of a topic or in all. */
function Reset({ group, places, query, onDone }) {
  const [given, setGiven] = useState({ topic: query.get("topic") ?? places[0]?.topic ?? "", queue: query.get("queue") ?? "", to: "first", at: "" })
  const set = (changes) => setGiven((before) => ({ ...before, ...changes }))
  const close = () => change({ reset: null, topic: null, queue: null })
  const to = ["first", "next"].includes(given.to) ? given.to : given.at.trim()
  const reset = async () => {
    await ask(named`rocketmq/groups/${group}/reset`, { method: "POST", body: { topic: given.topic, to, ...(given.queue === "" ? {} : { queue: Number(given.queue) }) } })
    toast(`Group ${group} goes on from there.`)
    onDone()
  }
  return html`<${Dialog} title="Move the place of the group" onClose=${close}>
    <${Form} verb="Move" isDangerous onSubmit=${reset} onDone=${close} isReady=${given.topic.trim() !== "" && to !== ""}>
      <div class="row">
        <${Field} label="Topic">${(props) => html`<input ...${props} required list="group-topics" value=${given.topic} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ topic: event.target.value })} />`}</${Field}>
        <datalist id="group-topics">${[...new Set(places.map((one) => one.topic))].map((one) => html`<option value=${one} />`)}</datalist>
        <${Field} label="Queue" hint="Empty: all.">${(props) => html`<input ...${props} type="number" min="0" value=${given.queue} onInput=${(event) => set({ queue: event.target.value })} />`}</${Field}>
      </div>
      <${Field} label="Goes on">
        ${(props) => html`<select ...${props} value=${given.to} onChange=${(event) => set({ to: event.target.value, at: "" })}>
          ${[["first", "at the first message"], ["next", "at the end: nothing old"], ["offset", "at an offset"], ["time", "at a time"]].map(([id, title]) => html`<option value=${id} selected=${id === given.to}>${title}</option>`)}
        </select>`}
      </${Field}>
      ${given.to === "offset" && html`<${Field} label="Offset">${(props) => html`<input ...${props} required inputmode="numeric" pattern="[0-9]+" value=${given.at} onInput=${(event) => set({ at: event.target.value })} />`}</${Field}>`}
      ${given.to === "time" && html`<${Field} label="Time" hint="Such as 10m (before now) or 2026-11-28T14:00:00Z.">${(props) => html`<input ...${props} required value=${given.at} autocomplete="off" onInput=${(event) => set({ at: event.target.value })} />`}</${Field}>`}
      <p class="note">What lies before the new place counts as settled; what lies behind it is delivered, perhaps again.</p>
    </${Form}>
  </${Dialog}>`
}
