// amqplib (AMQP 0.9.1), driven by lines of JSON.

const amqplib = require("amqplib")
const { Inbox, serve, within } = require("./lines.js")

let connection
const consumers = new Map()

/** A channel whose error fails what is done on it. */
async function onChannel(kind, work) {
  const channel = await connection[kind]()
  const failed = new Promise((_, reject) => channel.once("error", reject))
  failed.catch(() => {})
  const result = await Promise.race([work(channel), failed])
  return [channel, result]
}

async function briefly(kind, work) {
  const [channel, result] = await onChannel(kind, work)
  await channel.close()
  return result
}

const received = ({ content, fields, properties }) => ({
  body: content.toString(),
  offset: properties.headers["x-stream-offset"],
  filter_value: properties.headers["x-stream-filter-value"] ?? null,
  properties: properties.headers,
  exchange: fields.exchange,
  routing_key: fields.routingKey,
  message_id: properties.messageId ?? null,
})

serve({
  async connect({ host, port, user = "guest", password = "guest" }) {
    connection = await amqplib.connect({ hostname: host, port, username: user, password })
    connection.on("error", (error) => console.error(error))
  },

  create: ({ stream, arguments: given = {} }) =>
    briefly("createChannel", (channel) =>
      channel.assertQueue(stream, { durable: true, arguments: { "x-queue-type": "stream", ...given } }),
    ),
  exists: ({ stream }) => briefly("createChannel", (channel) => channel.checkQueue(stream)),
  delete: ({ stream }) => briefly("createChannel", (channel) => channel.deleteQueue(stream)),
  get: ({ stream }) => briefly("createChannel", (channel) => channel.get(stream)),
  bind: ({ exchange, stream, key }) =>
    briefly("createChannel", async (channel) => {
      await channel.assertExchange(exchange, "direct", { durable: true })
      await channel.bindQueue(stream, exchange, key)
    }),

  async publish({ stream, exchange = "", key, messages, mandatory = false }) {
    const returned = []
    await briefly("createConfirmChannel", async (channel) => {
      channel.on("return", (message) => returned.push(message.content.toString()))
      for (const message of messages) {
        const headers = { ...message.properties }
        if (message.filter_value !== undefined) headers["x-stream-filter-value"] = message.filter_value
        const { body, id, subject } = message
        channel.publish(exchange, key ?? stream, Buffer.from(body), { headers, mandatory, messageId: id, type: subject })
      }
      await within(20, "the confirms", channel.waitForConfirms())
    })
    return { confirmed: messages.length, returned }
  },

  async subscribe({ id, stream, offset, filter_values, match_unfiltered, sql, prefetch = 100, no_ack = false }) {
    const inbox = new Inbox()
    const given = {}
    if (offset !== undefined) given["x-stream-offset"] = offset
    if (filter_values) given["x-stream-filter"] = filter_values
    if (match_unfiltered) given["x-stream-match-unfiltered"] = true
    if (sql !== undefined) given["x-headgate-sql"] = sql
    const [channel] = await onChannel("createChannel", async (channel) => {
      if (prefetch) await channel.prefetch(prefetch)
      const take = (message) => {
        if (message === null) return inbox.close("cancelled")
        inbox.put(received(message))
        channel.ack(message)
      }
      return channel.consume(stream, take, { noAck: no_ack, arguments: given })
    })
    consumers.set(id, { inbox, channel })
  },

  take: ({ id, until, seconds = 20 }) => consumers.get(id).inbox.take(until, seconds),
  end: ({ id, seconds = 20 }) => consumers.get(id).inbox.end(seconds),

  async unsubscribe({ id }) {
    const { channel } = consumers.get(id)
    consumers.delete(id)
    await channel.close()
  },

  close: () => connection.close(),
})
