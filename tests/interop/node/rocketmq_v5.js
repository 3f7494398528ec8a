// rocketmq-client-nodejs, driven by lines of JSON.

const { createHash } = require("node:crypto")
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require("rocketmq-client-nodejs")
const { FilterType } = require("rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb")
const { serve, Inbox } = require("./lines.js")

const LONG_BYTES = 1000

let place
let producer
let number = 0
const held = new Map()
const consumers = new Map()
const inboxes = new Map()

const quiet = { debug() {}, info() {}, warn: console.error, error: console.error }

const base = () => ({ ...place, logger: quiet, requestTimeout: 10_000 })

const made = (topic, { body, size, tag, keys, group, due_ms, properties }) => ({
  topic,
  body: size === undefined ? Buffer.from(body) : Buffer.alloc(size, "x"),
  ...(tag !== undefined && { tag }),
  ...(keys && { keys }),
  ...(group !== undefined && { messageGroup: group }),
  ...(due_ms && { deliveryTimestamp: new Date(due_ms) }),
  ...(properties && { properties: new Map(Object.entries(properties)) }),
})

const told = (message) => {
  number += 1
  held.set(number, message)
  const body = message.body
  return {
    number,
    body: body.length > LONG_BYTES ? `${body.length} ${createHash("md5").update(body).digest("hex")}` : String(body),
    topic: message.topic,
    message_id: message.messageId,
    tag: message.tag || null,
    keys: [...message.keys].sort(),
    properties: Object.fromEntries(message.properties),
    group: message.messageGroup || null,
    attempt: message.deliveryAttempt,
    is_corrupted: message.corrupted ?? false,
  }
}

const expressions = (topics) => new Map(Object.entries(topics).map(([topic, { sql, tag = "*" }]) => [
  topic, sql === undefined ? new FilterExpression(tag) : new FilterExpression(sql, FilterType.SQL),
]))

const started = async (client) => {
  await client.startup()
  return client
}

serve({
  async connect({ host, port, tls = false, keys = null }) {
    place = { endpoints: `${host}:${port}`, namespace: "", sslEnabled: tls }
    if (keys) place.sessionCredentials = { accessKey: keys[0], accessSecret: keys[1] }
  },

  async send({ topic, messages }) {
    producer ??= await started(new Producer(base()))
    const receipts = []
    for (const message of messages) receipts.push(await producer.send(made(topic, message)))
    return receipts.map(({ messageId, recallHandle }) => ({ message_id: messageId, recall: recallHandle || null }))
  },

  async recall({ topic, handle }) {
    return (await producer.recallMessage(topic, handle)).messageId
  },

  async open({ id, group, topics, wait_seconds = 10 }) {
    const options = { consumerGroup: group, subscriptions: expressions(topics), awaitDuration: wait_seconds * 1000 }
    consumers.set(id, await started(new SimpleConsumer({ ...base(), ...options, maxRetryAttempts: 1 })))
  },

  async receive({ id, count = 32, invisible_seconds = 30 }) {
    return (await consumers.get(id).receive(count, invisible_seconds * 1000)).map(told)
  },

  async ack({ id, numbers }) {
    for (const each of numbers) await consumers.get(id).ack(held.get(each))
  },

  async change_invisible({ id, number, seconds }) {
    await consumers.get(id).changeInvisibleDuration(held.get(number), seconds * 1000)
  },

  async push({ id, group, topics, fails = {} }) {
    const inbox = new Inbox()
    const left = { ...fails }
    inboxes.set(id, inbox)
    const messageListener = {
      async consume(message) {
        const found = told(message)
        const fail = (left[found.body] ?? 0) > 0
        left[found.body] = (left[found.body] ?? 0) - 1
        inbox.put(found)
        return fail ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS
      },
    }
    const options = { consumerGroup: group, subscriptions: expressions(topics), messageListener }
    consumers.set(id, await started(new PushConsumer({ ...base(), ...options })))
  },

  take: ({ id, until, seconds = 20 }) => inboxes.get(id).take(until, seconds),

  async shut({ id }) {
    await consumers.get(id).shutdown()
    consumers.delete(id)
  },

  async close() {
    for (const consumer of consumers.values()) await consumer.shutdown()
    consumers.clear()
    await producer?.shutdown()
  },
})
