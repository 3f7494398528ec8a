// @stomp/stompjs over a TCP socket that looks like a web socket, driven by lines of JSON.

const net = require("node:net")
const { Client } = require("@stomp/stompjs")
const { Inbox, serve, within } = require("./lines.js")

/** As much of a web socket as stompjs asks for. */
class TcpSocket {
  readyState = 0
  protocol = ""

  constructor(host, port) {
    this.url = `tcp://${host}:${port}`
    this.socket = net.createConnection({ host, port, noDelay: true })
    this.socket.on("connect", () => {
      this.readyState = 1
      this.onopen?.()
    })
    this.socket.on("data", ({ buffer, byteOffset, length }) =>
      this.onmessage?.({ data: buffer.slice(byteOffset, byteOffset + length) }),
    )
    this.socket.on("error", (error) => this.onerror?.(error))
    this.socket.on("close", () => {
      this.readyState = 3
      this.onclose?.({ code: 1000, reason: "", wasClean: true })
    })
  }

  send(data) {
    this.socket.write(typeof data === "string" ? data : Buffer.from(data))
  }

  close() {
    this.readyState = 2
    this.socket.end()
  }
}

let client
let receipts = 0
let failed
const consumers = new Map()

const destination = (stream) => `/amq/queue/${stream}`

function receipt(what, send) {
  const id = `receipt-${++receipts}`
  const confirmed = new Promise((resolve, reject) => {
    client.watchForReceipt(id, resolve)
    failed = reject
  })
  send(id)
  return within(20, what, confirmed)
}

const received = (frame) => ({
  body: frame.body,
  offset: Number(frame.headers["x-stream-offset"]),
  filter_value: frame.headers["x-stream-filter-value"] ?? null,
  properties: frame.headers,
})

serve({
  async connect({ host, port, user = "guest", password = "guest" }) {
    client = new Client({
      webSocketFactory: () => new TcpSocket(host, port),
      connectHeaders: { login: user, passcode: password, host: "/" },
      reconnectDelay: 0,
      forceBinaryWSFrames: true,
      appendMissingNULLonIncoming: false,
    })
    await within(20, "CONNECTED", new Promise((resolve, reject) => {
      client.onConnect = resolve
      client.onStompError = (frame) => {
        const error = new Error(`${frame.headers.message}: ${frame.body}`)
        failed?.(error)
        for (const { inbox } of consumers.values()) inbox.close(error.message)
        reject(error)
      }
      client.activate()
    }))
  },

  async publish({ stream, target, messages, headers = {} }) {
    for (const message of messages) {
      await receipt("the receipt", (id) =>
        client.publish({
          destination: target ?? destination(stream),
          body: message.body,
          headers: {
            ...headers,
            ...message.properties,
            ...(message.filter_value !== undefined && { "x-stream-filter-value": message.filter_value }),
            receipt: id,
          },
        }),
      )
    }
    return { confirmed: messages.length }
  },

  async subscribe({ id, stream, target, offset, filter_values, match_unfiltered, sql, prefetch = 100, headers = {} }) {
    const inbox = new Inbox()
    consumers.set(id, { inbox })
    const given = { ack: "client-individual", "prefetch-count": String(prefetch), ...headers }
    if (offset !== undefined) given["x-stream-offset"] = typeof offset === "number" ? `offset=${offset}` : offset
    if (filter_values) given["x-stream-filter"] = filter_values.join(",")
    if (match_unfiltered) given["x-stream-match-unfiltered"] = "true"
    if (sql !== undefined) given["x-headgate-sql"] = sql
    await receipt("the receipt of SUBSCRIBE", (receiptId) => {
      const subscription = client.subscribe(
        target ?? destination(stream),
        (frame) => {
          inbox.put(received(frame))
          frame.ack()
        },
        { ...given, receipt: receiptId },
      )
      consumers.get(id).subscription = subscription
    })
  },

  take: ({ id, until, seconds = 20 }) => consumers.get(id).inbox.take(until, seconds),

  async unsubscribe({ id }) {
    const { subscription } = consumers.get(id)
    consumers.delete(id)
    await receipt("the receipt of UNSUBSCRIBE", (receiptId) => subscription.unsubscribe({ receipt: receiptId }))
  },

  async close() {
    await client.deactivate()
  },
})
