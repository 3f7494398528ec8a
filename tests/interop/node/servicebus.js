// @azure/service-bus, driven by lines of JSON.

const Long = require("long")
const WebSocket = require("ws")
const { ServiceBusClient } = require("@azure/service-bus")
const { serve } = require("./lines.js")

let client
let makeClient
const senders = new Map()
const receivers = new Map()
const held = new Map()

const told = (message) => ({
  body: String(message.body),
  message_id: message.messageId,
  sequence_number: Number(message.sequenceNumber),
  enqueued_sequence_number: message.enqueuedSequenceNumber ?? null,
  delivery_count: message.deliveryCount ?? null,
  session: message.sessionId ?? null,
  state: message.state ?? null,
  expires_after_ms: message.expiresAtUtc ? message.expiresAtUtc - message.enqueuedTimeUtc : null,
  subject: message.subject ?? null,
  correlation_id: message.correlationId ?? null,
  properties: message.applicationProperties ?? {},
  dead_letter_reason: message.deadLetterReason ?? null,
  dead_letter_description: message.deadLetterErrorDescription ?? null,
})

const made = ({ body, subject, correlation_id, properties, session, ttl_ms, due_ms }) => ({
  body,
  ...(session !== undefined && { sessionId: session }),
  ...(ttl_ms && { timeToLive: ttl_ms }),
  ...(due_ms && { scheduledEnqueueTimeUtc: new Date(due_ms) }),
  ...(subject && { subject }),
  ...(correlation_id && { correlationId: correlation_id }),
  ...(properties && { applicationProperties: properties }),
})

const accept = (from, { topic, subscription, queue, session }, options = {}) => {
  const place = queue ? [queue] : [topic, subscription]
  return session === undefined ? from.acceptNextSession(...place, options) : from.acceptSession(...place, session, options)
}

const ruleManager = ({ topic, subscription }, use) => use(client.createRuleManager(topic, subscription))

serve({
  async connect({ connection_string, web_socket = false }) {
    makeClient = (seconds = 20) => new ServiceBusClient(connection_string, {
      retryOptions: { maxRetries: 0, timeoutInMs: seconds * 1000 },
      ...(web_socket && { webSocketOptions: { webSocket: WebSocket } }),
    })
    client = makeClient()
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

  async schedule({ entity, messages, due_ms }) {
    if (!senders.has(entity)) senders.set(entity, client.createSender(entity))
    const numbers = await senders.get(entity).scheduleMessages(messages.map(made), new Date(due_ms))
    return numbers.map(Number)
  },

  async cancel({ entity, numbers }) {
    await senders.get(entity).cancelScheduledMessages(numbers.map((number) => Long.fromNumber(number)))
  },

  async receive_deferred({ id, numbers }) {
    const found = await receivers.get(id).receiveDeferredMessages(numbers.map((number) => Long.fromNumber(number)))
    for (const message of found) held.set(`${id}/${message.sequenceNumber}`, message)
    return found.map(told)
  },

  async open({ id, deletes = false, dead_letters = false, by_session = false, ...place }) {
    const { topic, subscription, queue } = place
    const options = {
      receiveMode: deletes ? "receiveAndDelete" : "peekLock",
      maxAutoLockRenewalDurationInMs: 0,
      ...(dead_letters && { subQueueType: "deadLetter" }),
    }
    let receiver
    if (by_session) receiver = await accept(client, place, options)
    else receiver = queue ? client.createReceiver(queue, options) : client.createReceiver(topic, subscription, options)
    receivers.set(id, receiver)
    return receiver.sessionId ?? null
  },

  // The error of asking for a session that is not to be had in some seconds.
  async no_session({ seconds = 1, ...place }) {
    const other = makeClient(seconds)
    try {
      await (await accept(other, place)).close()
      return null
    } catch (error) {
      return error.code
    } finally {
      await other.close()
    }
  },

  async state({ id, set = false, state }) {
    if (set) await receivers.get(id).setSessionState(state === null ? null : Buffer.from(state))
    return (await receivers.get(id).getSessionState())?.toString() ?? null
  },

  async renew_session({ id }) {
    return (await receivers.get(id).renewSessionLock()).getTime()
  },

  // Some sessions at once: the first message of each is done when all have one.
  async process({ queue, sessions, count }) {
    const found = []
    let done = 0
    const open = await Promise.all(Array.from({ length: sessions }, () => accept(client, { queue })))
    await new Promise((resolve, reject) => {
      const waiting = []
      for (const receiver of open) {
        receiver.subscribe({
          async processMessage(message) {
            found.push(told(message))
            if (found.length <= sessions) {
              await new Promise((go) => (waiting.push(go) === sessions) && waiting.forEach((each) => each()))
            }
            await receiver.completeMessage(message)
            done += 1
            if (done === count) resolve()
          },
          async processError({ error }) { reject(error) },
        }, { autoCompleteMessages: false })
      }
    })
    for (const receiver of open) await receiver.close()
    return found
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
    else if (how === "abandon") await receiver.abandonMessage(message, properties)
    else if (how === "defer") await receiver.deferMessage(message, properties)
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
