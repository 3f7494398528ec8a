// rhea, a plain AMQP 1.0 client, driven by lines of JSON. It keeps the links of a session by name, so it cannot open the
// pair of links with one name that management needs: streams are declared by others.

const rhea = require("rhea")
const { Inbox, serve, within } = require("./lines.js")

const { types } = rhea
let connection
const consumers = new Map()

const queue = (name) => `/queues/${encodeURIComponent(name)}`

/** The first of the named events; "…_close" and "disconnected" fail. */
function once(emitter, good, bad) {
  return within(20, good, new Promise((resolve, reject) => {
    emitter.once(good, resolve)
    for (const name of bad) {
      emitter.once(name, (context) => {
        const subject = context.receiver ?? context.sender ?? context.connection
        reject(subject?.error ?? context.error ?? new Error(name))
      })
    }
  }))
}

function filtersOf({ offset, filter_values, match_unfiltered, properties, application_properties, sql }) {
  const filters = {}
  const add = (key, descriptor, value) => {
    filters[key] = types.wrap_described(value, descriptor)
  }
  if (offset !== undefined) add("rabbitmq:stream-offset-spec", "rabbitmq:stream-offset-spec", offset)
  if (filter_values) add("rabbitmq:stream-filter", "rabbitmq:stream-filter", types.wrap_list(filter_values))
  if (match_unfiltered) {
    add("rabbitmq:stream-match-unfiltered", "rabbitmq:stream-match-unfiltered", types.wrap_boolean(true))
  }
  if (properties) {
    const { user_id, ...others } = properties
    const fields = { ...others, ...(user_id && { "user-id": types.wrap_binary(Buffer.from(user_id)) }) }
    add("amqp:properties-filter", "amqp:properties-filter", types.wrap_symbolic_map(fields))
  }
  if (application_properties) {
    add("amqp:application-properties-filter", "amqp:application-properties-filter", types.wrap_map(application_properties))
  }
  if (sql !== undefined) add("sql-filter", "amqp:sql-filter", sql)
  return filters
}

const bodyOf = (message) => {
  const content = message.body?.content ?? message.body
  return Buffer.isBuffer(content) ? content.toString() : String(content)
}

const received = (message) => ({
  body: bodyOf(message),
  offset: message.message_annotations["x-stream-offset"],
  filter_value: message.message_annotations["x-stream-filter-value"] ?? null,
  properties: message.application_properties ?? {},
  subject: message.subject ?? null,
})

const sent = (message) => ({
  body: rhea.message.data_section(Buffer.from(message.body)),
  ...(message.properties && { application_properties: message.properties }),
  ...(message.subject && { subject: message.subject }),
  ...(message.user_id && { user_id: Buffer.from(message.user_id) }),
  ...(message.to && { to: message.to }),
  ...(message.priority !== undefined && { priority: message.priority }),
  ...(message.creation_time !== undefined && { creation_time: message.creation_time }),
  ...(message.filter_value !== undefined && {
    message_annotations: { "x-stream-filter-value": message.filter_value },
  }),
})

serve({
  async connect({ host, port, user = "guest", password = "guest" }) {
    connection = rhea.create_container().connect({ host, port, username: user, password, reconnect: false })
    await once(connection, "connection_open", ["connection_error", "connection_close", "disconnected"])
    // Without a listener rhea throws; what fails is told by the links.
    for (const name of ["connection_error", "session_error", "disconnected"]) connection.on(name, console.error)
  },

  async publish({ stream, target, messages }) {
    const sender = connection.open_sender({ target: { address: target === undefined ? queue(stream) : target } })
    await once(sender, "sendable", ["sender_close"])
    const outcomes = new Map()
    const settled = within(20, "the outcomes", new Promise((resolve, reject) => {
      for (const outcome of ["accepted", "released", "rejected", "modified"]) {
        sender.on(outcome, ({ delivery }) => {
          outcomes.set(delivery.id, outcome)
          if (outcomes.size === messages.length) resolve()
        })
      }
      sender.once("sender_close", () => reject(sender.error))
    }))
    const deliveries = messages.map((message) => sender.send(sent(message)))
    await settled
    const closed = once(sender, "sender_close", [])
    sender.close()
    await closed
    return { outcomes: deliveries.map((delivery) => outcomes.get(delivery.id)) }
  },

  async subscribe({ id, stream, credit = 100, eager = false, pre_settled = false, ...filter }) {
    const inbox = new Inbox()
    const receiver = connection.open_receiver({
      source: { address: queue(stream), filter: filtersOf(filter) },
      credit_window: eager ? credit : 0,
      snd_settle_mode: pre_settled ? 1 : 0,
    })
    receiver.on("message", ({ message }) => inbox.put(received(message)))
    await once(receiver, "receiver_open", ["receiver_close"])
    // A refused attach is answered by an attach without a source, then by a detach.
    if (!receiver.source?.address) {
      if (!receiver.error) await once(receiver, "message", ["receiver_close"])
      throw receiver.error
    }
    if (!eager) {
      receiver.set_credit_window(credit)
      receiver.add_credit(credit)
    }
    receiver.on("receiver_error", () => inbox.close(receiver.error.condition))
    receiver.on("receiver_close", () => inbox.close(receiver.error?.condition ?? "closed"))
    consumers.set(id, { inbox, receiver })
    return { in_force: Object.keys(receiver.source.filter ?? {}).sort() }
  },

  take: ({ id, until, seconds = 20 }) => consumers.get(id).inbox.take(until, seconds),
  end: ({ id, seconds = 20 }) => consumers.get(id).inbox.end(seconds),

  async unsubscribe({ id }) {
    const { receiver } = consumers.get(id)
    consumers.delete(id)
    const closed = once(receiver, "receiver_close", [])
    receiver.close()
    await closed
  },

  async close() {
    const closed = once(connection, "connection_close", [])
    connection.close()
    await closed
  },
})
