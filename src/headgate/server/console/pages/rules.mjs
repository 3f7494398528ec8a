// The rules of a subscription, each with what it did and why it last failed.

import { ask, named } from "../api.mjs"
import { Badge, Card, Confirm, Empty, Icon, Stat, Stats, toast } from "../components.mjs"
import { count, exact } from "../format.mjs"
import { html } from "../html.mjs"
import { change, href } from "../router.mjs"

/** The filter of a rule as a text, of whichever kind it is. */
export function filterOf(rule) {
  if (rule.sql !== undefined) return rule.sql
  if (rule.tags !== undefined) return `tags: ${rule.tags}`
  const named = (map, prefix = "") => Object.entries(map ?? {}).flatMap(([name, value]) => (name === "properties" && prefix === "" && rule.correlation ? named(value, "properties.") : [`${prefix}${name} = ${JSON.stringify(value)}`]))
  if (rule.correlation) return named(rule.correlation).join(" and ")
  return [...named(rule.properties, "properties."), ...named(rule.application_properties, "application_properties.")].join(" and ")
}

/** What kind of filter it is, in words. */
export function kindOf(rule) {
  if (rule.sql !== undefined) return { servicebus: "SQL of Service Bus", rabbitmq: "SQL of RabbitMQ", amqp: "SQL of AMQP", rocketmq: "SQL of RocketMQ", cesql: "CloudEvents SQL" }[rule.dialect ?? "servicebus"] ?? rule.dialect
  if (rule.tags !== undefined) return "tags of RocketMQ"
  return rule.correlation ? "correlation filter" : "property filter of AMQP"
}

export const failuresOf = (rules) => rules.reduce((sum, rule) => sum + (rule.errors ?? 0) + (rule.failed_actions ?? 0), 0)

export const RuleName = ({ topic, subscription, rule }) => html`<a href=${href(["topics", topic, subscription, "rules", rule])}><bdi>${rule}</bdi></a>`

export function RuleCards({ topic, subscription, query, reload }) {
  const { rules } = subscription
  const add = html`<a class="button primary" href=${href(["topics", topic, subscription.name, "rules"])}><${Icon} name="plus" />Rule</a>`
  const doomed = query.get("delete-rule")
  const remove = async () => {
    await ask(named`topics/${topic}/subscriptions/${subscription.name}/rules/${doomed}`, { method: "DELETE" })
    toast(`Rule ${doomed} is deleted.`)
    reload()
  }
  if (!rules.length && subscription.fall_through) return html`<${Card}><${Empty} title="It gets what nobody else gets"><p>A fall-through subscription has no rules.</p></${Empty}></${Card}>`
  if (!rules.length) return html`<${Card}><${Empty} title="It gets nothing"><p>A message is taken when a rule selects it. Try one on the last messages before you add it.</p>${add}</${Empty}></${Card}>`
  return html`
    ${rules.map((rule) => html`<${RuleCard} key=${rule.name} topic=${topic} subscription=${subscription.name} rule=${rule} />`)}
    ${doomed !== null &&
    html`<${Confirm} title="Delete this rule?" verb="Delete" onConfirm=${remove} onClose=${() => change({ "delete-rule": null })}>
      <p>From the next message on, <bdi>${subscription.name}</bdi> no longer gets what only <strong><bdi>${doomed}</bdi></strong> selects. What is in the subscription stays.</p>
    </${Confirm}>`}
  `
}

function RuleCard({ topic, subscription, rule }) {
  const why = href(["why"], { name: topic, offset: rule.last_failure_offset, for: subscription })
  return html`<${Card}
    title=${html`<bdi>${rule.name}</bdi>`}
    note=${`${kindOf(rule)}, in force from offset ${exact(rule.from_offset)}`}
    actions=${html`
      <a class="button" href=${href(["topics", topic, subscription, "rules", rule.name])}>Change or try<span class="sr-only"> rule <bdi>${rule.name}</bdi></span></a>
      <button type="button" class="quiet" onClick=${() => change({ "delete-rule": rule.name })}>Delete<span class="sr-only"> rule <bdi>${rule.name}</bdi></span></button>
    `}
  >
    <${RuleText} of=${rule} />
    <${Stats}>
      <${Stat} label="Matched" value=${count(rule.matched)} />
      <${Stat} label="Filter failed" value=${count(rule.errors)} tone=${rule.errors ? "bad" : undefined} note=${rule.errors === null && rule.matched ? "not counted in a topic with so many rules" : undefined} />
      <${Stat} label="Action failed" value=${count(rule.failed_actions)} tone=${rule.failed_actions ? "bad" : undefined} />
    </${Stats}>
    ${rule.last_failure_reason !== null &&
    html`<p class="failure"><${Badge} tone="bad">last failure</${Badge}> <span><bdi>${rule.last_failure_reason}</bdi>, at offset ${exact(rule.last_failure_offset)}</span> <a href=${why}>Why?</a></p>`}
  </${Card}>`
}

export function RuleText({ of: rule }) {
  return html`<dl class="rule-text">
    <div><dt>Takes</dt><dd><code><bdi>${filterOf(rule)}</bdi></code></dd></div>
    ${rule.action && html`<div><dt>Then</dt><dd><code><bdi>${rule.action}</bdi></code></dd></div>`}
    ${rule.parameters && html`<div><dt>With</dt><dd><code><bdi>${JSON.stringify(rule.parameters)}</bdi></code></dd></div>`}
  </dl>`
}
