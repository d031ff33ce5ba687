// What the tests of the page need: mavrest with a simulated drone, a network that
// breaks, and a server whose status and answers the test chooses. The system chooses
// the port of each.
'use strict'
const { spawn, spawnSync } = require('node:child_process')
const http = require('node:http')
const net = require('node:net')
const os = require('node:os')
const { until } = require('./browser.js')

// address is this machine's address on the network. For a browser it is no "secure
// context", and the browser sends no Fetch metadata to it. .ci/page sets it if the
// machine has none.
const address = process.env.ADDRESS ||
	Object.values(os.networkInterfaces()).flat().find(a => a.family === 'IPv4' && !a.internal)?.address
if (!address) throw new Error('this machine has no address on a network; set ADDRESS')

// A simulated autopilot is in the same process as mavrest. If both get no processor
// time for half a second, it rightly fails safe. So they run ahead of all other
// programs, if the system allows it.
const first = spawnSync('chrt', ['--rr', '1', 'true']).status === 0 ? ['chrt', '--rr', '1'] : []

const running = new Set()
process.on('exit', () => { for (const p of running) p.kill('SIGKILL') })

// Mavrest is a running mavrest with a simulated drone.
class Mavrest {
	static async start(device = 'sim', ...options) {
		const m = new Mavrest()
		const [program, ...args] = [...first, process.env.MAVREST, '-device', device, '-port', '0', ...options]
		m.process = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] })
		running.add(m.process)
		m.log = ''
		m.process.stderr.setEncoding('utf8').on('data', text => { m.log += text })
		m.port = await until('mavrest listens', () => m.log.match(/msg=listening address=\S*:(\d+)/)?.[1])
		m.local = `http://localhost:${m.port}`
		m.lan = `http://${address}:${m.port}`
		return m
	}

	async status() { return (await fetch(this.local + '/api/drone/status')).json() }

	async post(path, body = {}) {
		const r = await fetch(this.local + '/api/drone/' + path, { method: 'POST', body: JSON.stringify(body) })
		return { status: r.status, ...await r.json() }
	}

	until(what, so, seconds = 60) {
		return until(what, async () => {
			const s = await this.status()
			return so(s) && s
		}, seconds)
	}

	armable() { return this.until('it can be armed', s => s.armable) }

	end() {
		running.delete(this.process)
		const over = new Promise(done => this.process.once('exit', done))
		this.process.kill('SIGKILL')
		return over
	}
}

// Relay is a network between the page and mavrest. It can be cut, lose all bytes, or hold them back.
class Relay {
	static async start(port) {
		const r = Object.assign(new Relay(), { port, state: 'up', sockets: new Set() })
		r.server = net.createServer(near => {
			if (r.state === 'cut') return near.destroy()
			const far = net.connect(r.port, '127.0.0.1')
			for (const [from, to] of [[near, far], [far, near]]) {
				r.sockets.add(from)
				const end = () => { r.sockets.delete(from); to.destroy() }
				from.on('error', () => {}).on('close', () => {
					if (r.held) r.held.push(() => to.end(end)) // the end follows the held bytes
					else end()
				}).on('data', data => {
					if (r.held) r.held.push(() => to.write(data))
					else if (r.state === 'up') to.write(data) // a 'still' network loses it
				})
			}
		})
		await new Promise(done => r.server.listen(0, done))
		r.url = `http://${address}:${r.server.address().port}/api/drone/status`
		return r
	}

	// stall holds back all bytes until flow, which then delivers them.
	stall() { this.held = [] }

	async flow() {
		const held = this.held
		this.held = null
		for (const deliver of held) deliver()
		await new Promise(done => setTimeout(done, 100))
	}

	// set makes the network 'up', 'cut' (it refuses connections) or 'still' (it loses all bytes).
	set(state) {
		this.state = state
		if (state !== 'still') for (const s of this.sockets) s.destroy()
	}

	end() {
		this.set('cut')
		this.server.close()
	}
}

// Fake serves mavrest's page with its headers, and a status that the test makes up.
class Fake {
	static async start(page) {
		// mute: a new stream begins without a status.
		const f = Object.assign(new Fake(), { page, streams: new Set(), pages: 0, posts: [], mute: false })
		f.answer = (path, body, r) => r.end(JSON.stringify(path === 'input'
			? { status: 'OK', mode: 'position', expires_in: body.timeout }
			: { status: 'accepted', status_code: 0, command: 1, mode: 'hold', done: true, took: 2 }))
		f.server = http.createServer((q, r) => f.serve(q, r))
		await new Promise(done => f.server.listen(0, done))
		f.url = `http://${address}:${f.server.address().port}/api/drone/status`
		return f
	}

	serve(q, r) {
		if (q.method === 'POST') {
			let text = ''
			q.on('data', data => { text += data }).on('end', () => {
				const post = { path: q.url.replace('/api/drone/', ''), body: JSON.parse(text), open: true }
				r.on('close', () => { post.open = false })
				this.posts.push(post)
				this.answer(post.path, post.body, r)
			})
		} else if (q.headers.accept === 'text/event-stream') {
			r.writeHead(200, { 'Content-Type': 'text/event-stream' })
			r.write('retry: 1000\n\n')
			r.on('close', () => this.streams.delete(r))
			this.streams.add(r)
			if (this.last && !this.mute) this.say(this.last)
		} else if (q.url === '/api/drone/status') {
			this.pages++
			r.writeHead(200, this.page.headers).end(this.page.html)
		} else {
			r.writeHead(404).end()
		}
	}

	// say sends a status to every page.
	say(status) {
		this.last = status
		for (const r of this.streams) r.write(`event: status\ndata: ${JSON.stringify(status)}\n\n`)
	}

	named(path) { return this.posts.filter(p => p.path === path) }

	end() {
		this.server.close()
		this.server.closeAllConnections()
	}
}

// thePage is the page as mavrest serves it.
async function thePage(mavrest) {
	const r = await fetch(mavrest.local + '/api/drone/status', { headers: { Accept: 'text/html' } })
	const headers = Object.fromEntries(['content-type', 'content-security-policy', 'cache-control'].map(name => [name, r.headers.get(name)]))
	return { headers, html: await r.text() }
}

// stopped is a script that stops the page's clock, which then moves only in run(ms).
const stopped = `(() => {
	let t = 1000, last = 0
	const timers = new Map(), Real = Date
	performance.now = () => t
	Date.now = () => 1.8e12 + t
	const add = (f, ms, every) => { timers.set(++last, { f, at: t + ms, every }); return last }
	window.setTimeout = (f, ms = 0) => add(f, ms)
	window.setInterval = (f, ms) => add(f, ms, ms)
	window.clearTimeout = window.clearInterval = id => timers.delete(id)
	window.run = ms => {
		for (const end = t + ms; ;) {
			const [id, next] = [...timers].reduce((a, b) => a && a[1].at <= b[1].at ? a : b, null) ?? []
			if (!next || next.at > end) { t = end; return }
			t = next.at
			if (next.every) next.at += next.every
			else timers.delete(id)
			next.f()
		}
	}
})()`

module.exports = { Mavrest, Relay, Fake, thePage, stopped, address }
