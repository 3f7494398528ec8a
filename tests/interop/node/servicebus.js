// @azure/service-bus, driven by lines of JSON.

const Long = require("long")
const WebSocket = require("ws")
const { ServiceBusClient } = require("@azure/service-bus")
const { serve } = require("./lines.js")

let client
const senders = new Map()
const receivers = new Map()
const held = new Map()

const told = (message) => ({
  body: String(message.body),
  message_id: message.messageId,
  sequence_number: Number(message.sequenceNumber),
  enqueued_sequence_number: message.enqueuedSequenceNumber ?? null,
  delivery_count: message.deliveryCount ?? null,
  subject: message.subject ?? null,
  correlation_id: message.correlationId ?? null,
  properties: message.applicationProperties ?? {},
  dead_letter_reason: message.deadLetterReason ?? null,
  dead_letter_description: message.deadLetterErrorDescription ?? null,
})

const made = ({ body, subject, correlation_id, properties }) => ({
  body,
  ...(subject && { subject }),
  ...(correlation_id && { correlationId: correlation_id }),
  ...(properties && { applicationProperties: properties }),
})

const ruleManager = ({ topic, subscription }, use) => use(client.createRuleManager(topic, subscription))

serve({
  async connect({ connection_string, web_socket = false }) {
    client = new ServiceBusClient(connection_string, {
      retryOptions: { maxRetries: 0, timeoutInMs: 20000 },
      ...(web_socket && { webSocketOptions: { webSocket: WebSocket } }),
    })
  },

  async send({ entity, messages, batch = false }) {
    if (!senders.has(entity)) senders.set(entity, client.createSender(entity))
    const sender = senders.get(entity)
    if (batch) {
      const envelope = await sender.createMessageBatch()
      for (const message of messages) if (!envelope.tryAddMessage(made(message))) throw new Error("the batch is full")
      await sender.sendMessages(envelope)
    } else {
      for (const message of messages) await sender.sendMessages(made(message))
    }
  },

  async open({ id, topic, subscription, queue, deletes = false, dead_letters = false }) {
    const options = {
      receiveMode: deletes ? "receiveAndDelete" : "peekLock",
      maxAutoLockRenewalDurationInMs: 0,
      ...(dead_letters && { subQueueType: "deadLetter" }),
    }
    const receiver = queue ? client.createReceiver(queue, options) : client.createReceiver(topic, subscription, options)
    receivers.set(id, receiver)
  },

  async receive({ id, count, seconds = 20 }) {
    const messages = []
    while (messages.length < count) {
      const more = await receivers.get(id).receiveMessages(count - messages.length, { maxWaitTimeInMs: seconds * 1000 })
      if (more.length === 0) break
      messages.push(...more)
    }
    for (const message of messages) held.set(`${id}/${message.sequenceNumber}`, message)
    return messages.map(told)
  },

  async settle({ id, number, how, reason, description, properties }) {
    const receiver = receivers.get(id)
    const message = held.get(`${id}/${number}`)
    if (how === "complete") await receiver.completeMessage(message)
    else if (how === "abandon") await receiver.abandonMessage(message)
    else if (how === "defer") await receiver.deferMessage(message)
    else {
      await receiver.deadLetterMessage(message, {
        deadLetterReason: reason, deadLetterErrorDescription: description, ...properties,
      })
    }
  },

  async renew({ id, number }) {
    const until = await receivers.get(id).renewMessageLock(held.get(`${id}/${number}`))
    return until.getTime()
  },

  async peek({ id, count, from = 1 }) {
    const messages = await receivers.get(id).peekMessages(count, { fromSequenceNumber: Long.fromNumber(from) })
    return messages.map(told)
  },

  async shut({ id }) {
    await receivers.get(id).close()
    receivers.delete(id)
  },

  add_rule: ({ name, sql, correlation, action, ...place }) => ruleManager(place, async (manager) => {
    const filter = sql !== undefined ? { sqlExpression: sql } : {
      ...(correlation.label && { subject: correlation.label }),
      ...(correlation.correlation_id && { correlationId: correlation.correlation_id }),
      ...(correlation.properties && { applicationProperties: correlation.properties }),
    }
    await manager.createRule(name, filter, ...(action === undefined ? [] : [{ sqlExpression: action }]))
  }),

  remove_rule: ({ name, ...place }) => ruleManager(place, (manager) => manager.deleteRule(name)),

  rules: (place) => ruleManager(place, async (manager) => {
    const found = []
    for await (const { name, filter, action } of manager.listRules()) {
      found.push({
        name,
        sql: filter.sqlExpression ?? null,
        label: filter.subject ?? null,
        properties: filter.applicationProperties ?? {},
        action: action?.sqlExpression ?? null,
      })
    }
    return found
  }),

  async close() {
    await client.close()
  },
})
