// What could not be delivered: how much each subscription and group has, the dead letters of one, and sending them once
// more.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Badge, Bars, Card, Check, Confirm, Dialog, Empty, Field, Form, Loaded, Page, Pairs, Skeleton, Table, Trouble, toast, valueOf } from "../components.mjs"
import { count, counted, exact } from "../format.mjs"
import { html } from "../html.mjs"
import { change, href } from "../router.mjs"
import { CopyLine, Pages, idOf, originOf, useCopies, whyOf } from "./copies.mjs"
import { Jobs } from "./jobs.mjs"
import { deadLettersOf } from "./rocketmq.mjs"
import { QUEUE, placeOf, titleOf } from "./topics.mjs"

export default function DeadLetters({ topic, subscription, group, query }) {
  if (topic === undefined && group === undefined) return html`<${Overview} />`
  return html`<${Letters} of=${group === undefined ? ofSubscription(topic, subscription) : ofGroup(group)} query=${query} />`
}

/**
 * Whose dead letters a page is about: `name`, `path` of the requests, `crumbs`, `home` (words and address), `target` where
 * they go back to, `isOwn(job)`, `why(row)` (the address of that question, or null), `noReason` in place of a missing
 * reason, and what is `left` of those that are deleted.
 */
function ofSubscription(topic, subscription) {
  const isQueue = subscription === QUEUE
  return {
    name: isQueue ? topic : subscription,
    path: named`topics/${topic}/subscriptions/${subscription}/dead-letters`,
    crumbs: [[topic, href(["topics", topic])], ...(isQueue ? [] : [[subscription, href(["topics", topic, subscription])]])],
    home: [isQueue ? "The queue" : "The subscription", href(placeOf(topic, subscription))],
    target: topic,
    isOwn: (job) => job.subject.includes(topic),
    why: (row) => (originOf(row) === null ? null : whyOf(topic, subscription, originOf(row))),
    noReason: "no reason given",
    left: html`The messages that they came from stay in <a href=${href(["messages", topic])}>the stream</a> until retention.`,
  }
}

function ofGroup(group) {
  const stream = `%DLQ%${group}`
  return {
    name: group,
    path: named`rocketmq/groups/${group}/dead-letters`,
    crumbs: [[group, href(["rocketmq", "groups", group])]],
    home: ["The group", href(["rocketmq", "groups", group])],
    target: "the queue of each",
    isOwn: (job) => job.subject === stream,
    why: (row) => {
      const source = row.message?.message_annotations?.["x-opt-deadletter-source"]
      return source && originOf(row) !== null ? whyOf(source, group, originOf(row)) : null
    },
    noReason: "given up",
    left: html`The stream <a href=${href(["messages", stream])}><bdi>${stream}</bdi></a> keeps them for its consumers, until retention.`,
  }
}

// all of them

function Overview() {
  const subscriptions = usePolled("subscriptions")
  const groups = usePolled("rocketmq/groups")
  const letters = (groups.data ?? []).filter((row) => row.dead_letters > 0).sort((a, b) => b.dead_letters - a.dead_letters)
  return html`<${Page} title="Dead letters" lead="Messages that were refused, failed too often, expired, or that a rule failed for. They wait here until somebody decides.">
    <${Jobs} title="Resubmissions" isShown=${isResubmission} />
    ${letters.length > 0 &&
    html`<${Card} title="Of consumer groups" isFlush>
      <${Table} id="groups" caption="consumer groups with dead letters" columns=${GROUP_COLUMNS} rows=${letters} keyOf=${(row) => row.name} />
    </${Card}>`}
    <${Loaded} of=${subscriptions}>
      ${(rows) => {
        const known = rows.filter((row) => !row.error)
        const having = known.filter((row) => row.dead_lettered > 0).sort((a, b) => b.dead_lettered - a.dead_lettered)
        return html`
          ${having.length > 1 &&
          html`<${Card} title="Where they are" note=${`${counted(having.reduce((sum, row) => sum + row.dead_lettered, 0), "dead letter")} in all`}>
            <${Bars} title="Dead letters by subscription" of=${having.slice(0, 8).map((row) => ({ label: html`<a href=${href(["dead-letters", row.topic, row.name])}><bdi>${titleOf(row.topic, row.name)}</bdi></a>`, value: row.dead_lettered }))} />
          </${Card}>`}
          <${Card} isFlush>
            <${Table}
              caption="subscriptions with dead letters"
              columns=${COLUMNS}
              rows=${[...having, ...known.filter((row) => !row.dead_lettered)]}
              keyOf=${(row) => `${row.topic}/${row.name}`}
              empty=${html`<${Empty} title="No subscriptions yet"><p><a href=${href(["topics"])}>Topics and queues</a> have dead letters.</p></${Empty}>`}
            />
          </${Card}>
        `
      }}
    </${Loaded}>
  </${Page}>`
}

const COLUMNS = [
  { id: "topic", title: "Topic or queue", isWide: true, value: (row) => row.topic, render: (row) => html`<a href=${href(placeOf(row.topic, QUEUE))}><bdi>${row.topic}</bdi></a>` },
  { id: "name", title: "Subscription", value: (row) => (row.name === QUEUE ? "" : row.name), render: (row) => (row.name === QUEUE ? html`<${Badge} tone="info">queue</${Badge}>` : html`<a href=${href(placeOf(row.topic, row.name))}><bdi>${row.name}</bdi></a>`) },
  {
    id: "dead",
    title: "Dead letters",
    isNumber: true,
    value: (row) => row.dead_lettered,
    render: (row) => html`<a href=${href(["dead-letters", row.topic, row.name])}>${count(row.dead_lettered)}<span class="sr-only"> dead letters of <bdi>${titleOf(row.topic, row.name)}</bdi></span></a>`,
  },
  { id: "to", title: "They go to", value: (row) => row.settings?.forward_dead_letters_to ?? "", render: (row) => (row.settings?.forward_dead_letters_to ? html`<bdi>${row.settings.forward_dead_letters_to}</bdi>` : html`<span class="note">they stay</span>`) },
]

const GROUP_COLUMNS = [
  { id: "name", title: "Group", isWide: true, value: (row) => row.name, render: (row) => html`<a href=${href(["rocketmq", "groups", row.name])}><bdi>${row.name}</bdi></a>` },
  { id: "dead", title: "Dead letters", isNumber: true, value: (row) => row.dead_letters, render: (row) => html`<a href=${deadLettersOf(row.name)}>${count(row.dead_letters)}<span class="sr-only"> dead letters of <bdi>${row.name}</bdi></span></a>` },
]

const isResubmission = (job) => job.kind === "resubmission"

// those of one subscription or group

function Letters({ of, query }) {
  const { path } = of
  const copies = useCopies(`${path}/messages`, query)
  const chosen = query.getAll("chosen")
  const rows = copies.rows ?? []
  const choose = (id, isChosen) => change({ chosen: isChosen ? [...chosen, id] : chosen.filter((one) => one !== id) })
  const all = chosen.length === 0
  const many = all ? "all" : exact(chosen.length)
  const list = all ? null : chosen.map((id) => Number(id.split("-")[0])).map((offset) => ({ offset, rule: 0 }))
  const settled = () => {
    change({ chosen: null, open: null, from: null, rule: null })
    copies.reload()
  }
  const remove = async () => {
    const { deleted } = await ask(`${path}/delete`, { method: "POST", body: { copies: list } })
    toast(`${counted(deleted, "dead letter")} deleted.`)
    settled()
  }
  const actions = html`
    <button type="button" disabled=${!rows.length} onClick=${() => change({ delete: "1" })}>Delete ${many} …</button>
    <button type="button" class="primary" disabled=${!rows.length} onClick=${() => change({ resubmit: "1" })}>Resubmit ${many} …</button>
  `
  return html`<${Page} title=${`Dead letters of ${of.name}`} crumbs=${[["Dead letters", href(["dead-letters"])], ...of.crumbs]} actions=${actions}>
    <${Jobs} title="Resubmissions" isShown=${(job) => isResubmission(job) && of.isOwn(job)} onEnd=${copies.reload} />
    ${copies.problem && html`<${Trouble} problem=${copies.problem} retry=${copies.reload} />`}
    ${!copies.rows && !copies.problem && html`<${Card}><${Skeleton} /></${Card}>`}
    ${copies.rows && rows.length === 0 &&
    html`<${Card}><${Empty} title=${copies.isFirst ? "No dead letters" : "No more dead letters"}>
      <p>${copies.isFirst ? "Nothing was refused, failed too often or expired." : "They end here."} <a href=${of.home[1]}>${of.home[0]}</a></p>
    </${Empty}></${Card}>`}
    ${rows.length > 0 &&
    html`
      <${Reasons} rows=${rows} noReason=${of.noReason} isAll=${copies.isFirst && !copies.next} />
      <${Card} isFlush title="Messages" note=${all ? undefined : html`<span role="status">${exact(chosen.length)} chosen</span>`} actions=${html`<button type="button" class="quiet" onClick=${copies.reload}>Look again</button>`}>
        <div class="table-tools">
          <label class="check"><input type="checkbox" checked=${rows.every((row) => chosen.includes(idOf(row)))} onChange=${(event) => change({ chosen: event.target.checked ? rows.map(idOf) : null })} />Choose the ${exact(rows.length)} shown</label>
        </div>
        <ul class="copy-lines" aria-label="Dead letters">
          ${rows.map(
            (row) => html`<${CopyLine}
              key=${idOf(row)}
              row=${row}
              query=${query}
              why=${of.why(row)}
              detail=${html`<${Reason} row=${row} noReason=${of.noReason} />`}
              chosen=${chosen.includes(idOf(row))}
              onChoose=${(isChosen) => choose(idOf(row), isChosen)}
            />`,
          )}
        </ul>
        <${Pages} of=${copies} />
      </${Card}>
    `}
    ${query.has("delete") &&
    html`<${Confirm} title=${all ? "Delete all dead letters?" : `Delete ${counted(chosen.length, "dead letter")}?`} verb="Delete" word=${all ? "delete all" : undefined} onConfirm=${remove} onClose=${() => change({ delete: null })}>
      <p>They cannot be resubmitted afterwards. ${of.left}</p>
    </${Confirm}>`}
    ${query.has("resubmit") && html`<${Resubmit} target=${of.target} path=${path} list=${list} many=${all ? "all dead letters" : counted(chosen.length, "dead letter")} onDone=${settled} />`}
  </${Page}>`
}

const reasonOf = (row, noReason) => row.message?.application_properties?.DeadLetterReason ?? noReason
const REASONS = {
  FilterEvaluationException: "a rule failed for it",
  MaxDeliveryCountExceeded: "failed too often",
  TTLExpiredException: "expired",
  MaxTransferHopCountExceeded: "forwarded too often",
  TransferDestinationNotFound: "its target is gone",
  TransferDestinationDisabled: "its target is disabled",
  TransferDestinationFull: "its target is full",
}

function Reason({ row, noReason }) {
  const reason = reasonOf(row, noReason)
  const text = row.message?.application_properties?.DeadLetterErrorDescription
  const attempts = row.message?.message_annotations?.["x-headgate-attempts"]
  return html`<${Badge} tone="bad" title=${reason}><bdi>${REASONS[reason] ?? String(reason)}</bdi></${Badge}>
    ${text && html`<span><bdi>${String(text)}</bdi></span>`}
    ${attempts > 0 && html`<span class="note">${counted(attempts, "attempt")}</span>`}
    ${row.state !== "active" && html`<${Badge}>${row.state}</${Badge}>`}`
}

function Reasons({ rows, noReason, isAll }) {
  const found = new Map()
  for (const reason of rows.map((row) => reasonOf(row, noReason))) found.set(reason, (found.get(reason) ?? 0) + 1)
  if (found.size < 2) return null
  const bars = [...found].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([reason, value]) => ({ label: html`<bdi>${REASONS[reason] ?? String(reason)}</bdi>`, value }))
  return html`<${Card} title="Why" note=${isAll ? "all of them" : `the ${exact(rows.length)} shown`}><${Bars} title="Dead letters by reason" of=${bars} /></${Card}>`
}

// resubmission

function Resubmit({ target, path, list, many, onDone }) {
  const [given, setGiven] = useState({ to: "", set: [], remove: "", rate: "", untaken: false })
  const [tried, setTried] = useState({ state: "no" })
  const set = (changes) => setGiven((before) => ({ ...before, ...changes }))
  const close = () => change({ resubmit: null })
  const body = {
    copies: list,
    to: given.to.trim() || null,
    set: Object.fromEntries(given.set.filter(([name]) => name).map(([name, value]) => [name, valueOf(value)])),
    remove: given.remove.split(/[\s,]+/).filter(Boolean),
    rate_per_s: given.rate ? Number(given.rate) : null,
    include_untaken: given.untaken,
  }
  const { rate_per_s: _, ...decides } = body
  const key = JSON.stringify(decides)
  const isTried = tried.state === "done" && tried.key === key
  const tryOut = async () => {
    setTried({ state: "running" })
    try {
      setTried({ state: "done", key, found: await ask(`${path}/resubmissions`, { method: "POST", body: { ...body, dry_run: true } }) })
    } catch (problem) {
      setTried({ state: "failed", problem })
    }
  }
  const send = async () => {
    if (!isTried) return tryOut()
    await ask(`${path}/resubmissions`, { method: "POST", body })
    toast("They are being resubmitted.")
    onDone()
    close()
  }
  return html`<${Dialog} title=${`Resubmit ${many}`} onClose=${close} isWide>
    <${Form} verb=${isTried ? `Resubmit ${exact(sent(tried.found, given.untaken))}` : "Dry run"} onSubmit=${send} isReady=${tried.state !== "running" && !(isTried && sent(tried.found, given.untaken) === 0)}>
      <${Field} label="To" hint="A topic, queue or stream. Empty: where they came from.">
        ${(props) => html`<input ...${props} placeholder=${target} value=${given.to} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ to: event.target.value })} />`}
      </${Field}>
      <${Pairs} label="Set application properties" hint="So that a rule takes them now. Numbers, true and false are taken as such; quoted they are text." of=${given.set} onChange=${(next) => set({ set: next })} />
      <div class="row">
        <${Field} label="Remove application properties" hint="Names with commas.">
          ${(props) => html`<input ...${props} value=${given.remove} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ remove: event.target.value })} />`}
        </${Field}>
        <${Field} label="At most a second" hint="Empty: as fast as the server has time.">
          ${(props) => html`<input ...${props} type="number" min="0.1" step="any" value=${given.rate} onInput=${(event) => set({ rate: event.target.value })} />`}
        </${Field}>
      </div>
      <${Check} label="Also those that no rule takes" hint="Nobody would get them; without it they stay dead letters." isChecked=${given.untaken} onChange=${(untaken) => set({ untaken })} />
      <div aria-live="polite">
        ${tried.state === "running" && html`<${Skeleton} lines=${2} />`}
        ${tried.state === "failed" && html`<${Trouble} problem=${tried.problem} />`}
        ${tried.state === "done" && !isTried && html`<p class="stale">Something was changed since the dry run: try again.</p>`}
        ${isTried && html`<${Taken} of=${tried.found} />`}
      </div>
    </${Form}>
  </${Dialog}>`
}

const sent = (found, untaken) => found.copies - (untaken ? 0 : found.num_taken_by_none)

function Taken({ of }) {
  const ruleOf = (one) => html`<bdi>${one.subscription === QUEUE ? "the queue" : one.subscription}${one.rule && ` / ${one.rule}`}</bdi>`
  return html`<section class="taken">
    <h3>${of.is_complete ? "" : "The first "}${counted(of.copies, "dead letter")}: who would take them</h3>
    ${of.taken.length > 0 ? html`<${Bars} title="Taken by" of=${of.taken.map((one) => ({ label: ruleOf(one), value: one.copies }))} />` : of.num_taken_by_none > 0 ? html`<p class="stale">No rule of the target takes any.</p>` : html`<p>There are no rules where they go: all are published.</p>`}
    ${of.failing.map((one) => html`<p class="stale">${ruleOf(one)} fails for ${exact(one.copies)}.</p>`)}
    ${of.num_taken_by_none > 0 && html`<p class="stale">No rule takes ${exact(of.num_taken_by_none)}: offsets ${of.taken_by_none.slice(0, 10).map((one) => exact(one.offset)).join(", ")}${of.num_taken_by_none > 10 && " …"}. They stay dead letters.</p>`}
  </section>`
}
