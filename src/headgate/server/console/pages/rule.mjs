// One rule, changed or new: its filter and action, and what it would do with the last messages before it is in force.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, useAsked } from "../api.mjs"
import { Bars, Card, Confirm, Empty, Field, FilterBox, Form, Loaded, Meter, Page, Pairs, Skeleton, Stat, Stats, Trouble, toast, valueOf } from "../components.mjs"
import { count, counted, exact, moment, percent } from "../format.mjs"
import { html } from "../html.mjs"
import { go, href } from "../router.mjs"
import { RuleText } from "./rules.mjs"

const KINDS = [
  ["sql", "SQL filter"],
  ["correlation", "Correlation filter"],
  ["tags", "Tags of RocketMQ"],
  ["properties", "Properties"],
]
const LASTS = [100, 1000, 10_000, 100_000]

export default function RulePage({ topic, subscription, rule, query }) {
  const answer = useAsked(named`topics/${topic}/subscriptions/${subscription}`)
  const crumbs = [["Topics and queues", href(["topics"])], [topic, href(["topics", topic])], [subscription, href(["topics", topic, subscription])]]
  const lead = "Try it on the last messages first: a dry run changes nothing."
  return html`<${Page} title=${rule ?? "New rule"} crumbs=${crumbs} lead=${lead}>
    <${Loaded} of=${answer}>
      ${(data) => {
        const before = data.rules.find((one) => one.name === rule)
        if (rule !== undefined && !before) return html`<${Card}><${Empty} title="There is no such rule"><p><a href=${href(["topics", topic, subscription])}>The rules that there are</a></p></${Empty}></${Card}>`
        return html`<${Editor} topic=${topic} subscription=${subscription} before=${before} others=${data.rules.filter((one) => one !== before)} query=${query} />`
      }}
    </${Loaded}>
  </${Page}>`
}

const list = (map) => Object.entries(map ?? {}).filter(([name, value]) => !(name === "properties" && typeof value === "object")).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)])
const map = (pairs) => Object.fromEntries(pairs.filter(([name]) => name).map(([name, value]) => [name, valueOf(value)]))

function fieldsOf(rule = {}) {
  const kind = rule.tags !== undefined ? "tags" : rule.correlation ? "correlation" : rule.properties || rule.application_properties ? "properties" : "sql"
  return {
    name: rule.name ?? "",
    kind,
    sql: rule.sql ?? "",
    dialect: rule.dialect ?? "servicebus",
    tags: rule.tags ?? "",
    system: list(kind === "correlation" ? rule.correlation : rule.properties),
    own: list(kind === "correlation" ? rule.correlation.properties : rule.application_properties),
    action: rule.action ?? "",
    parameters: list(rule.parameters),
  }
}

/** The rule in its written form. */
function ruleOf(given) {
  const system = map(given.system)
  const own = map(given.own)
  const filled = (name, of) => (Object.keys(of).length ? { [name]: of } : {})
  const filter = {
    sql: () => ({ sql: given.sql, ...(given.dialect === "servicebus" ? {} : { dialect: given.dialect }) }),
    tags: () => ({ tags: given.tags }),
    correlation: () => ({ correlation: { ...system, ...filled("properties", own) } }),
    properties: () => ({ ...filled("properties", system), ...filled("application_properties", own) }),
  }[given.kind]()
  return { ...filter, ...(given.action.trim() ? { action: given.action } : {}), ...filled("parameters", map(given.parameters)) }
}

function Editor({ topic, subscription, before, others }) {
  const [given, setGiven] = useState(() => fieldsOf(before))
  const [tried, setTried] = useState({ state: "no" })
  const [last, setLast] = useState(1000)
  const [isAsked, setAsked] = useState(false)
  const set = (changes) => setGiven((now) => ({ ...now, ...changes }))
  const path = named`topics/${topic}/subscriptions/${subscription}/rules/${given.name || "new"}`
  const key = JSON.stringify(ruleOf(given))
  const isTried = tried.state === "done" && tried.key === key
  const isEmpty = given.kind === "sql" ? !given.sql.trim() : given.kind === "tags" ? !given.tags.trim() : given.system.length + given.own.length === 0

  const tryOut = async () => {
    setTried({ state: "running" })
    try {
      const body = { rule: ruleOf(given), last, samples: 3 }
      const answers = await Promise.all([
        ask(`${path}/dry-run`, { method: "POST", body }),
        before ? ask(`${path}/dry-run`, { method: "POST", body: { rule: ruleOf(fieldsOf(before)), last, samples: 1 } }) : null,
      ])
      setTried({ state: "done", key, found: answers[0], now: answers[1], last })
    } catch (problem) {
      setTried({ state: "failed", problem })
    }
  }
  const save = async () => {
    await ask(path, { method: "PUT", query: { only: before ? "existing" : "new" }, body: ruleOf(given) })
    toast(`Rule ${given.name} is in force from the next message on.`)
    go(href(["topics", topic, subscription]))
  }
  const system = given.kind === "correlation" ? ["System properties", "such as correlation_id, message_id, label, session_id"] : ["Properties section", "such as subject, message-id, content-type"]

  return html`
    <${Card}>
      <${Form} verb=${before ? "Replace the rule …" : "Add the rule …"} onSubmit=${async () => setAsked(true)} isReady=${!isEmpty && given.name.trim() !== ""}>
        <div class="row">
          ${!before && html`<${Field} label="Name">${(props) => html`<input ...${props} required value=${given.name} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ name: event.target.value })} />`}</${Field}>`}
          <${Field} label="Kind of filter">
            ${(props) => html`<select ...${props} value=${given.kind} onChange=${(event) => set({ kind: event.target.value })}>${KINDS.map(([id, title]) => html`<option value=${id} selected=${id === given.kind}>${title}</option>`)}</select>`}
          </${Field}>
        </div>
        ${given.kind === "sql" && html`<${FilterBox} label="Takes" text=${given.sql} language=${given.dialect} onText=${(sql) => set({ sql })} onLanguage=${(dialect) => set({ dialect })} onSubmit=${tryOut} />`}
        ${given.kind === "tags" && html`<${Field} label="Takes" hint="Such as paid || refunded.">${(props) => html`<input ...${props} value=${given.tags} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ tags: event.target.value })} />`}</${Field}>`}
        ${(given.kind === "correlation" || given.kind === "properties") &&
        html`<div class="grid two">
          <${Pairs} label=${system[0]} hint=${system[1]} of=${given.system} onChange=${(next) => set({ system: next })} />
          <${Pairs} label="Application properties" hint="Numbers, true and false are taken as such; quoted they are text." of=${given.own} onChange=${(own) => set({ own })} />
        </div>`}
        <${Field} label="Then change the copy (optional)" hint="In the language of Service Bus actions, such as SET priority = 'high'; REMOVE internal.">
          ${(props) => html`<textarea ...${props} rows="2" value=${given.action} spellcheck=${false} onInput=${(event) => set({ action: event.target.value })}></textarea>`}
        </${Field}>
        ${given.parameters.length > 0 && html`<${Pairs} label="Values of @names" of=${given.parameters} onChange=${(parameters) => set({ parameters })} />`}
        <div class="row try">
          <${Field} label="Dry run on the last">
            ${(props) => html`<select ...${props} value=${String(last)} onChange=${(event) => setLast(Number(event.target.value))}>${LASTS.map((one) => html`<option value=${String(one)} selected=${one === last}>${exact(one)} messages</option>`)}</select>`}
          </${Field}>
          <button type="button" disabled=${isEmpty || tried.state === "running"} onClick=${tryOut}>Dry run</button>
        </div>
      </${Form}>
    </${Card}>
    <div aria-live="polite" class="page">
      ${tried.state === "running" && html`<${Card} title="Trying …"><${Skeleton} /></${Card}>`}
      ${tried.state === "failed" && html`<${Trouble} problem=${tried.problem} />`}
      ${tried.state === "done" && html`<${Tried} of=${tried} isCurrent=${isTried} topic=${topic} subscription=${subscription} others=${others} />`}
    </div>
    ${isAsked &&
    html`<${Confirm} title=${before ? "Replace this rule?" : "Add this rule?"} verb=${before ? "Replace" : "Add"} isDangerous=${false} onConfirm=${save} onClose=${() => setAsked(false)}>
      ${before && html`<h3>Now</h3><${RuleText} of=${before} />`}
      <h3>From the next message on</h3>
      <${RuleText} of=${ruleOf(given)} />
      ${isTried
        ? html`<p>Of the last ${counted(tried.found.messages, "message")} it would have taken <strong>${exact(tried.found.matched)}</strong>${tried.now && html`; now it takes ${exact(tried.now.matched)}`}.</p>`
        : html`<p class="stale">It was not tried on the last messages. A dry run says what it would take.</p>`}
      ${isTried && tried.found.errors + tried.found.failed_actions > 0 && html`<p class="stale">It fails for ${counted(tried.found.errors + tried.found.failed_actions, "message")}.</p>`}
    </${Confirm}>`}
  `
}

function Tried({ of, isCurrent, topic, subscription }) {
  const { found, now } = of
  const why = (offset) => href(["messages", topic], { from: offset, open: offset, limit: 20 })
  const share = found.messages ? found.matched / found.messages : 0
  return html`
    ${!isCurrent && html`<p class="stale" role="status">The rule was changed since: try it again.</p>`}
    <${Card} title="What it would have done" note=${`the last ${counted(found.messages, "message")}, offsets ${exact(found.start)} to ${exact(Math.max(found.start, found.stop - 1))}`}>
      <div class="meters"><${Meter} label="Taken" share=${share} text=${`${exact(found.matched)} of ${exact(found.messages)}, ${percent(share)}`} />
        ${now && html`<${Meter} label="The rule in force takes" share=${found.messages ? now.matched / found.messages : 0} text=${exact(now.matched)} />`}
      </div>
      <${Stats}>
        <${Stat} label="Taken" value=${count(found.matched)} note=${now ? difference(found.matched - now.matched) : undefined} />
        <${Stat} label="Unknown" value=${count(found.unknown)} note=${found.unreadable_bodies ? `${counted(found.unreadable_bodies, "body", "bodies")} cannot be read` : "a value is missing or null"} />
        <${Stat} label="Filter fails" value=${count(found.errors)} tone=${found.errors ? "bad" : undefined} />
        <${Stat} label="Action fails" value=${count(found.failed_actions)} tone=${found.failed_actions ? "bad" : undefined} />
      </${Stats}>
      ${found.messages === 0 && html`<${Empty} title="There are no messages yet"><p>Publish some to the topic, and try again.</p></${Empty}>`}
    </${Card}>
    ${found.overlaps?.length > 0 &&
    html`<${Card} title="Also taken by other rules" note="of this subscription; without actions they give one copy together">
      <${Bars} title="Messages that another rule takes, too" of=${found.overlaps.map((one) => ({ label: html`<bdi>${one.rule}</bdi>`, value: one.messages, text: exact(one.messages) }))} />
    </${Card}>`}
    <div class="grid two">
      ${found.error_samples.length > 0 && html`<${Card} title="Fails for"><ul class="samples">${found.error_samples.map((one) => html`<li><a href=${href(["why"], { name: topic, offset: one.offset, for: subscription })}>${exact(one.offset)}</a> <bdi>${one.note}</bdi></li>`)}</ul></${Card}>`}
      ${found.changes.length > 0 && html`<${Card} title="Before and after the action">${found.changes.map((one) => html`<${Changed} of=${one} link=${why(one.offset)} />`)}</${Card}>`}
      ${found.samples.length > 0 &&
      html`<${Card} title="Takes, for example">
        <ul class="samples">
          ${found.samples.map((one) => html`<li><a href=${why(one.offset)}>${exact(one.offset)}</a> <span class="note">${moment(one.timestamp_ms)}</span> <code><bdi>${JSON.stringify(one.message?.application_properties ?? one.message?.properties ?? one.message)}</bdi></code></li>`)}
        </ul>
      </${Card}>`}
    </div>
  `
}

const difference = (more) => (more === 0 ? "as many as now" : `${exact(Math.abs(more))} ${more > 0 ? "more" : "fewer"} than now`)

function Changed({ of, link }) {
  return html`<div class="changed">
    <h3><a href=${link}>Offset ${exact(of.offset)}</a></h3>
    <table>
      <caption class="sr-only">What the action changes at offset ${exact(of.offset)}</caption>
      <thead><tr><th scope="col">Field</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
      <tbody>
        ${of.changes.map((one) => html`<tr><td><code><bdi>${one.field}</bdi></code></td><td>${told(one.before)}</td><td><b>${told(one.after)}</b></td></tr>`)}
      </tbody>
    </table>
  </div>`
}

const told = (value) => (value === null || value === undefined ? html`<span class="note">absent</span>` : html`<bdi>${typeof value === "string" ? value : JSON.stringify(value)}</bdi>`)
