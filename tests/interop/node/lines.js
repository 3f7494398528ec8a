// A client program takes commands as lines of JSON on standard input and answers each, in order, with one line of JSON
// on standard output: {"ok": result} or {"error": text}. Everything else goes to standard error.

const readline = require("node:readline")

console.log = console.info = console.error

const plain = (key, value) => (typeof value === "bigint" ? Number(value) : value)

function describe(error) {
  if (error instanceof Error) return `${error.name}: ${error.message}`
  if (error && error.condition) return `${error.condition}: ${error.description}`
  return JSON.stringify(error, plain)
}

/** Serve the commands, a map from name to asynchronous function, until standard input ends. */
exports.serve = (commands) => {
  let last = Promise.resolve()
  // A library may throw where nobody can catch: that fails the command which is being done.
  let fail = console.error
  process.on("uncaughtException", (error) => fail(error))
  const answer = async (line) => {
    const { do: name, ...fields } = JSON.parse(line)
    let reply
    try {
      const failed = new Promise((_, reject) => (fail = reject))
      reply = { ok: (await Promise.race([commands[name](fields), failed])) ?? null }
    } catch (error) {
      reply = { error: describe(error) }
    }
    process.stdout.write(JSON.stringify(reply, plain) + "\n")
  }
  const input = readline.createInterface({ input: process.stdin })
  input.on("line", (line) => (last = last.then(() => answer(line))))
  input.on("close", () => last.then(() => process.exit(0)))
}

/** What a consumer has received and nobody has taken yet. */
exports.Inbox = class Inbox {
  messages = []
  waiting = []
  closed = null

  put(message) {
    this.messages.push(message)
    this.#look()
  }

  /** The consumer was ended by the other side; who waits is told why. */
  close(reason) {
    this.closed = String(reason)
    this.#look()
  }

  #look() {
    this.waiting = this.waiting.filter((look) => !look())
  }

  #wait(seconds, what, look) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        const bodies = this.messages.map((message) => message.body)
        reject(new Error(`${what} within ${seconds} s, but ${JSON.stringify(bodies)}`))
      }, seconds * 1000)
      const done = () => {
        if (!look(resolve, reject)) return false
        clearTimeout(timer)
        return true
      }
      if (!done()) this.waiting.push(done)
    })
  }

  /** Everything received since the last call, once all bodies of `until` are among it. */
  take(until, seconds) {
    return this.#wait(seconds, `did not receive ${until}`, (resolve, reject) => {
      const bodies = new Set(this.messages.map((message) => message.body))
      if (until.every((body) => bodies.has(body))) resolve(this.messages.splice(0))
      else if (this.closed !== null) reject(new Error(`closed: ${this.closed}`))
      else return false
      return true
    })
  }

  /** Why the other side ended the consumer, once it has. */
  end(seconds) {
    return this.#wait(seconds, "was not closed", (resolve) => {
      if (this.closed === null) return false
      resolve(this.closed)
      return true
    })
  }
}

/** A promise that fails after some seconds, naming what did not happen. */
exports.within = (seconds, what, promise) => {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not happen within ${seconds} s`)), seconds * 1000)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
