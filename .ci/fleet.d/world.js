// What the tests of the fleet need: nginx with deploy/fleet.conf or a broken one, simulated
// drones in namespaces of their own, and a drone that records what it is sent.
'use strict'
const { spawn, spawnSync, execFileSync } = require('node:child_process')
const assert = require('node:assert')
const fs = require('node:fs')
const http = require('node:http')
const http2 = require('node:http2')
const https = require('node:https')
const net = require('node:net')
const tls = require('node:tls')
const { until, sleep } = require('../page.d/browser.js')

const work = process.env.WORK
const address = '10.9.0.1'
const ca = fs.readFileSync(work + '/fleet.pem')
const published = fs.readFileSync(__dirname + '/../../deploy/fleet.conf', 'utf8').replace(/^#\t/gm, '\t')

// The users of the examples in fleet.conf, with the headers that they send.
const users = Object.fromEntries(['ann', 'ben'].map(name => {
	const [, email, key] = published.match(`"(${name}@\\S+) (\\S+)" ${name};`)
	return [name, { email, key, headers: { 'user-email': email, 'api-key': key } }]
}))
users.cleo = { headers: { 'user-email': 'cleo@example.org', 'api-key': '00' } }
users.zoe = { headers: { 'user-email': 'zoe@example.org', 'api-key': '01' } } // the hub lacks her address

// example is fleet.conf as its owner edits it: with the examples, and more drones and users.
const example = published
	.replace('map $drone $address {', `$&
	amy 10.9.0.13;
	dora 10.9.0.17;
	fake 10.9.0.14;
	closed 10.9.0.15;
	silent 10.9.0.16;
	${Array.from({ length: 100 }, (_, i) => `ghost${100 + i} 10.9.0.${100 + i};`).join('\n\t')}`)
	.replace(/map "\$http_user_email .* {/, '$&\n\t"cleo@example.org 00" cleo;\n\t"zoe@example.org 01" zoe;')
	.replace('map "$user $drone" $source {', '$&\n\t"~^cleo " 10.9.0.102;\n\t"~^zoe " 10.9.7.7;')

const running = new Set()
process.on('exit', () => { for (const p of running) p.kill('SIGKILL') })

// started runs a program whose output goes into a file.
function started(file, program, ...args) {
	const log = fs.openSync(file, 'a')
	const p = spawn(program, args, { stdio: ['ignore', log, log] })
	fs.closeSync(log)
	running.add(p)
	p.once('exit', () => running.delete(p))
	return p
}

function ended(p, signal) {
	if (p.exitCode !== null || p.signalCode !== null) return
	const over = new Promise(done => p.once('exit', done))
	p.kill(signal)
	return over
}

// Hub is Debian's nginx with a fleet.conf.
class Hub {
	// start returns a hub that listens. edit changes what its owner has; main changes nginx.conf.
	static async start(edit = conf => conf, main = conf => conf) {
		const h = new Hub()
		h.folder = fs.mkdtempSync(work + '/hub')
		h.port = await new Promise(done => {
			const s = net.createServer().listen(0, address, () => {
				const { port } = s.address()
				s.close(() => done(port))
			})
		})
		h.url = `https://${address}:${h.port}`
		h.edit = edit
		h.write()
		const conf = fs.readFileSync('/etc/nginx/nginx.conf', 'utf8')
			.replace(/pid .*;/, `pid ${h.folder}/pid;`)
			.replace(/error_log .*;/, '')
			.replace(/access_log .*;/, 'access_log off;')
			.replace('include /etc/nginx/conf.d/*.conf;', `include ${h.folder}/fleet.conf;`)
			.replace('include /etc/nginx/sites-enabled/*;', '')
		fs.writeFileSync(h.folder + '/nginx.conf', main(conf))
		h.process = started(h.folder + '/log', 'nginx', '-c', h.folder + '/nginx.conf', '-e', 'stderr', '-g', 'daemon off;')
		const up = () => new Promise(done => {
			const s = net.connect(h.port, address, () => { s.destroy(); done(true) }).on('error', () => done(false))
		})
		try {
			await until('nginx listens', async () => {
				if (h.process.exitCode !== null) throw new Error('nginx does not start')
				return up()
			})
		} catch (e) {
			await h.end()
			throw e
		}
		return h
	}

	// write makes its fleet.conf, edited further.
	write(further = conf => conf) {
		this.conf = further(this.edit(example))
			.replace('listen 443', `listen ${this.port}`)
			.replace('/etc/ssl/certs/fleet.pem', work + '/fleet.pem')
			.replace('/etc/ssl/private/fleet.key', work + '/fleet.key')
		fs.writeFileSync(this.folder + '/fleet.conf', this.conf)
	}

	reload() { this.process.kill('SIGHUP') }

	// ask sends a request as a user and returns the answer.
	ask(user, method, path, body, { headers, ...options } = {}) {
		const all = { method, ca, agent: false, ...options, headers: { ...users[user]?.headers, ...headers } }
		return asked(https, this.url + path, all, body)
	}

	// session opens a connection of HTTP/2. Its ask is as the hub's.
	async session() {
		const s = http2.connect(this.url, { ca })
		await new Promise((done, failed) => s.once('connect', done).once('error', failed))
		s.on('error', () => {})
		const ask = (user, method, path, body, headers = {}) => new Promise((done, failed) => {
			const r = s.request({ ':method': method, ':path': path, ...users[user].headers, ...headers })
			let status, text = ''
			r.on('response', headers => { status = headers[':status'] })
			r.setEncoding('utf8').on('data', data => { text += data })
			r.on('end', () => done({ status, text })).on('error', failed)
			r.end(body)
		})
		return { ask, request: headers => s.request(headers), end: () => s.destroy() }
	}

	// raw opens a connection without a request.
	raw() {
		return new Promise((done, failed) => {
			const s = tls.connect({ host: address, port: this.port, ca, servername: '' }, () => done(s)).on('error', failed)
			s.text = ''
			s.setEncoding('utf8').on('data', data => { s.text += data })
			s.over = new Promise(done => s.once('close', done))
		})
	}

	log() { return fs.readFileSync(this.folder + '/log', 'utf8').split('\n').slice(-40).join('\n') }

	end() { return ended(this.process, 'SIGKILL') }
}

function asked(protocol, url, options, body) {
	return new Promise((done, failed) => {
		const r = protocol.request(url, options, answer => {
			let text = ''
			answer.setEncoding('utf8').on('data', data => { text += data }).on('end', () => {
				let json
				try { json = JSON.parse(text) } catch {}
				done({ status: answer.statusCode, headers: answer.headers, text, json })
			}).on('error', failed)
		})
		r.on('error', failed).setTimeout(options.timeout ?? 100_000, () => r.destroy(new Error('no answer')))
		r.end(body)
	})
}

// A simulated autopilot that gets no processor time fails safe, so it runs first.
const first = spawnSync('chrt', ['--rr', '1', 'true']).status === 0 ? ['chrt', '--rr', '1'] : []

const ip = (...args) => execFileSync('ip', args)

// network makes a namespace with an address on the drones' network.
function network(name, address) {
	ip('netns', 'add', name)
	ip('link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name)
	ip('link', 'set', name, 'master', 'fleet', 'up')
	ip('-n', name, 'addr', 'add', address + '/24', 'dev', 'eth0')
	ip('-n', name, 'link', 'set', 'eth0', 'up')
	ip('-n', name, 'link', 'set', 'lo', 'up')
}

// Drone is a mavrest with a simulated autopilot.
class Drone {
	constructor(name, address, device) { Object.assign(this, { name, address, device, url: `http://${address}` }) }

	async start() {
		if (!this.process) network(this.name, this.address)
		const [program, ...args] = [...first, work + '/mavrest', '-device', this.device]
		this.process = started(`${work}/${this.name}.log`, 'ip', 'netns', 'exec', this.name, program, ...args)
		await until(this.name + ' listens', () => this.status().catch(() => null))
	}

	// ask sends it a request directly.
	ask(method, path, body, options = {}) {
		return asked(http, this.url + '/api/drone' + path, { method, agent: false, ...options }, body)
	}

	async status() { return (await this.ask('GET', '/status', undefined, { timeout: 2000 })).json }

	// mode asks in its own namespace: the drone may have left the network.
	mode() {
		const curl = ['curl', '-s', '-m', '5', 'http://localhost/api/drone/mode']
		const answer = execFileSync('ip', ['netns', 'exec', this.name, ...curl])
		return JSON.parse(answer).mode
	}

	until(what, so, seconds = 60) {
		return until(what, async () => {
			const s = await this.status().catch(() => null)
			return s && so(s) && s
		}, seconds)
	}

	cut() { ip('link', 'set', this.name, 'nomaster') }

	join() { ip('link', 'set', this.name, 'master', 'fleet') }

	kill() { return ended(this.process, 'SIGKILL') }
}

// Ghost is a drone that accepts a connection, never answers, and leaves the network.
class Ghost {
	static last = 100 + 3

	static async start() {
		const g = Object.assign(new Ghost(), { name: 'ghost' + ++Ghost.last })
		network(g.name, '10.9.0.' + Ghost.last)
		g.process = started(`${work}/${g.name}.log`, 'ip', 'netns', 'exec', g.name, process.execPath, '-e',
			`require('node:net').createServer(s => s.on('data', () => console.log('asked')).on('error', () => {})).listen(80)`)
		await until(g.name + ' listens', () => new Promise(done => {
			const s = net.connect(80, '10.9.0.' + Ghost.last, () => { s.destroy(); done(true) }).on('error', () => done(false))
		}))
		return g
	}

	asked() { return fs.readFileSync(`${work}/${this.name}.log`, 'utf8').includes('asked') }

	leave() { ip('link', 'set', this.name, 'nomaster') }

	end() { return ended(this.process, 'SIGKILL') }
}

// fake is a drone that records each request, half ones too. A request's query says how it
// is answered, and has a word by which its test finds it.
const fake = {
	seen: [],

	start() {
		this.server = net.createServer(s => {
			let one
			s.setEncoding('latin1').on('error', () => {}).on('close', () => { if (one) one.open = false })
			s.on('data', data => {
				if (!one) this.seen.push(one = { from: s.remoteAddress, text: '', open: true, socket: s })
				one.text += data
				const [head, body] = one.text.split('\r\n\r\n')
				const length = Number(head.match(/^content-length: (\d+)/im)?.[1] ?? 0)
				if (body === undefined || body.length < length) return
				if (this.answer(one, s)) one = null
			})
		})
		return new Promise(done => this.server.listen(80, '10.9.0.14', done))
	},

	// answer returns whether the connection's next request may follow.
	answer(one, s) {
		const how = one.text.match(/^\S+ \S+\?(\w+)/)?.[1]
		const answer = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"status":"OK"}\n'
		if (how === 'close') s.end()
		else if (how === 'reset') s.resetAndDestroy()
		else if (how === 'cut') s.end(answer.slice(0, -5))
		else if (how === 'cuthead') s.end(answer.slice(0, 20))
		else if (how === 'events') s.write('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n')
		else if (how === 'late') setTimeout(() => s.end(answer), 65_000)
		else if (how === 'soon') setTimeout(() => s.end(answer), 4_000)
		else if (how !== 'never') return s.write(answer)
	},

	// named returns the connections that brought a test's word.
	named(word) { return this.seen.filter(one => one.text.split('\r\n')[0].includes(word)) },

	end() {
		this.server.close()
		for (const one of this.seen) one.socket.destroy()
	},
}

// word returns a new word for a test's requests.
let words = 0
const word = () => 'w' + ++words + 'x'

module.exports = { Hub, Drone, Ghost, fake, word, users, example, ended, until, sleep, assert, ca, address, work }
