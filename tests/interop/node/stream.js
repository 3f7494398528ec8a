// rabbitmq-stream-js-client, driven by lines of JSON.

const { connect, Offset } = require("rabbitmq-stream-js-client")
const { Inbox, serve, within } = require("./lines.js")

const COMPRESSIONS = { none: 0, gzip: 1 }

let client
const consumers = new Map()

const offsetOf = (start) => (typeof start === "number" ? Offset.offset(BigInt(start)) : Offset[start]())

const options = (message) => ({
  ...(message.id !== undefined && { publishingId: BigInt(message.id) }),
  ...(message.properties && { applicationProperties: message.properties }),
  ...((message.subject || message.user_id) && {
    messageProperties: {
      ...(message.subject && { subject: message.subject }),
      ...(message.user_id && { userId: Buffer.from(message.user_id) }),
    },
  }),
})

const received = (message, stream) => ({
  body: message.content.toString(),
  offset: message.offset,
  properties: message.applicationProperties ?? {},
  subject: message.messageProperties?.subject ?? null,
  stream,
})

function inboxOf(id) {
  const inbox = new Inbox()
  consumers.set(id, { inbox })
  return inbox
}

serve({
  async connect({ host, port, user = "guest", password = "guest" }) {
    client = await connect({ hostname: host, port, username: user, password, vhost: "/" })
  },

  create: ({ stream, arguments: given = {} }) => client.createStream({ stream, arguments: given }),
  delete: ({ stream }) => client.deleteStream({ stream }),

  async publish({ stream, messages, name, compression, sub_batch }) {
    const values = new Map(messages.map((message) => [message.body, message.filter_value]))
    const filtered = messages.some((message) => message.filter_value !== undefined)
    const publisher = await client.declarePublisher(
      { stream, publisherRef: name },
      filtered ? (message) => values.get(message.content.toString()) : undefined,
    )
    let confirmed = 0
    let expected = Infinity
    let all
    const refused = []
    const done = new Promise((resolve) => (all = resolve))
    const look = () => confirmed >= expected && all()
    publisher.on("publish_confirm", (error, ids) => {
      if (error !== null) refused.push(...ids.map((id) => [id, error]))
      confirmed += ids.length
      look()
    })
    try {
      if (sub_batch) {
        const entries = messages.map((message) => ({ content: Buffer.from(message.body), ...options(message) }))
        for (let first = 0; first < entries.length; first += sub_batch) {
          await publisher.sendSubEntries(entries.slice(first, first + sub_batch), COMPRESSIONS[compression])
        }
        expected = Math.ceil(messages.length / sub_batch)
      } else {
        for (const message of messages) await publisher.send(Buffer.from(message.body), options(message))
        await publisher.flush()
        expected = messages.length
      }
      look()
      await within(20, "all confirms", done)
      return { confirmed, refused }
    } finally {
      await publisher.close()
    }
  },

  async last_id({ stream, name }) {
    const publisher = await client.declarePublisher({ stream, publisherRef: name })
    try {
      return await publisher.getLastPublishingId()
    } finally {
      await publisher.close()
    }
  },

  async subscribe({ id, stream, super_stream, name, offset, filter_values, match_unfiltered, post_filter, single_active }) {
    const inbox = inboxOf(id)
    if (super_stream) {
      const consumer = await client.declareSuperStreamConsumer(
        { superStream: super_stream, consumerRef: name, offset: offsetOf(offset) },
        (message, consumer) => inbox.put(received(message, consumer.streamName)),
      )
      consumers.get(id).close = () => consumer.close()
      return
    }
    const filter = filter_values && {
      values: filter_values,
      matchUnfiltered: match_unfiltered ?? false,
      postFilterFunc: (message) =>
        post_filter ? message.applicationProperties?.[post_filter.property] === post_filter.value : true,
    }
    const consumer = await client.declareConsumer(
      {
        stream,
        offset: offsetOf(offset),
        consumerRef: name,
        filter,
        singleActive: single_active,
        connectionClosedListener: (hadError) => inbox.close(`connection, error: ${hadError}`),
        consumerUpdateListener: single_active ? async () => offsetOf(offset) : undefined,
      },
      (message) => inbox.put(received(message, stream)),
    )
    Object.assign(consumers.get(id), { consumer, close: () => client.closeConsumer(consumer.extendedId) })
  },

  take: ({ id, until, seconds = 20 }) => consumers.get(id).inbox.take(until, seconds),

  async unsubscribe({ id }) {
    const { close } = consumers.get(id)
    consumers.delete(id)
    await close()
  },

  store: ({ id, offset }) => consumers.get(id).consumer.storeOffset(BigInt(offset)),
  stored: ({ id }) => consumers.get(id).consumer.queryOffset(),
  stats: ({ stream }) => client.streamStatsRequest(stream),

  create_super: ({ stream, partitions, binding_keys }) =>
    client.createSuperStream({ streamName: stream }, binding_keys, partitions),
  delete_super: ({ stream }) => client.deleteSuperStream({ streamName: stream }),
  partitions: ({ stream }) => client.queryPartitions({ superStream: stream }),
  route: ({ stream, key }) => client.routeQuery({ superStream: stream, routingKey: key }),

  async publish_super({ stream, routing, messages }) {
    const publisher = await client.declareSuperStreamPublisher(
      { superStream: stream, routingStrategy: routing },
      (_, { applicationProperties }) => applicationProperties.key,
    )
    for (const message of messages) {
      await publisher.send(Buffer.from(message.body), { applicationProperties: { key: message.key } })
    }
    await publisher.close()
  },

  async close() {
    await client.close()
  },
})
