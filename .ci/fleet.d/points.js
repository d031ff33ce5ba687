// The points that fleet.conf must hold. Each takes a hub, and fails if the hub's
// fleet.conf does not hold it.
'use strict'
const { execFile } = require('node:child_process')
const http2 = require('node:http2')
const https = require('node:https')
const net = require('node:net')
const { Ghost, fake, word, users, until, sleep, assert, ca, work } = require('./world.js')

const basic = (email, key) => ({ Authorization: 'Basic ' + Buffer.from(`${email}:${key}`).toString('base64') })
const operations = ['status', 'mode', 'input', 'takeoff', 'goto', 'land']

// within fails if something takes longer.
function within(seconds, what, promise) {
	let timer
	const late = new Promise((_, failed) => {
		timer = setTimeout(() => failed(new Error(`${what}: not within ${seconds} s`)), seconds * 1000)
	})
	return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// answers checks an answer of the hub itself.
function answers(a, status, code, what) {
	const seen = [a.status, a.json?.code, a.headers['content-type']]
	assert.deepStrictEqual(seen, [status, code, 'application/json'], `${what}: ${a.status} ${a.text}`)
	assert.match(a.json.error, /^\S.+/)
}

// parsed reads an answer from a connection's text.
function parsed(text) {
	const [head, body] = text.split('\r\n\r\n')
	let json
	try { json = JSON.parse(body) } catch {}
	const headers = { 'content-type': head.match(/^content-type: (.*)$/im)?.[1] }
	return { status: Number(head.match(/^HTTP\/1.1 (\d+)/)?.[1]), headers, text, json }
}

// takenOff lets a drone take off that is not armed.
async function takenOff(drone) {
	await drone.until('it can be armed', s => s.armable)
	const up = async () => (await drone.ask('POST', '/takeoff', '{"altitude":5,"wait":60}')).json.done
	await until('it takes off', up, 90)
}

module.exports = { within, answers, takenOff, points: ({ rosie, bob, amy }) => ({
	'a name is the right drone': async hub => {
		for (const [name, drone] of Object.entries({ rosie, bob, amy })) {
			const { vehicle } = await drone.until('it is online', s => s.online)
			const a = await hub.ask('ann', 'GET', `/api/drone/${name}/status`)
			assert.strictEqual(a.status, 200, `${name}: ${a.text}`)
			assert.deepStrictEqual(a.json.vehicle, vehicle, name)
		}
		const w = word()
		const a = await hub.ask('ann', 'POST', `/api/drone/fake/goto?ok&${w}`, '{"lat":1,"lon":2}')
		assert.deepStrictEqual([a.status, a.text], [200, '{"status":"OK"}\n'])
		assert.strictEqual(fake.named(w).length, 1, 'the query goes on')
		const { text } = fake.named(w)[0]
		assert.match(text, /^POST \/api\/drone\/goto\?ok&w\d+x HTTP[^]*\r\n\r\n\{"lat":1,"lon":2\}$/)
		assert.match(text, /\r\nHost: 10.9.0.14\r\n/)
	},

	'a missing, wrong or swapped key is 401': async hub => {
		const { ann, ben } = users
		const w = word(), path = `/api/drone/fake/mode?ok&${w}`
		const wrong = [
			{}, { 'user-email': ann.email }, { 'api-key': ann.key }, { 'user-email': ann.email, 'api-key': '' },
			{ 'user-email': ann.email, 'api-key': ben.key }, { 'user-email': ben.email, 'api-key': ann.key },
			{ 'user-email': ann.email, 'api-key': ann.key.slice(1) }, { 'user-email': ann.email, 'api-key': ann.key + '0' },
			{ 'user-email': 'ann', 'api-key': ann.key }, { 'user-email': `${ann.email} ${ann.key}` },
			{ 'user-email': ann.email, 'api_key': ann.key }, { ...ann.headers, ...basic(ann.email, 'x') },
			basic(ann.email, ben.key), basic(ben.email, ann.key), basic(ann.email, ''), basic('', ann.key),
			{ Authorization: 'Basic' },
			{ Authorization: 'Bearer ' + ann.key },
		]
		for (const headers of wrong) {
			for (const Accept of ['*/*', 'text/event-stream']) {
				const a = await hub.ask('', 'POST', path, '{}', { headers: { ...headers, Accept } })
				answers(a, 401, 'unauthorized', JSON.stringify(headers))
				assert.strictEqual(a.headers['www-authenticate'], undefined, 'only a page asks for a login')
			}
			const a = await hub.ask('', 'GET', path, '', { headers: { ...headers, Accept: 'text/html,*/*' } })
			const seen = [a.status, a.headers['www-authenticate']]
			assert.deepStrictEqual(seen, [401, 'Basic realm="drones"'], 'a page asks for a login')
		}
		assert.deepStrictEqual(fake.named(w), [])
		for (const user of [ann, ben]) {
			for (const headers of [user.headers, basic(user.email, user.key)]) {
				const a = await hub.ask('', 'GET', '/api/drone/rosie/mode', '', { headers: { ...headers, Accept: 'text/html' } })
				assert.deepStrictEqual([a.status, a.headers['www-authenticate']], [200, undefined], JSON.stringify(headers))
			}
		}
	},

	'a key for some drones opens no other': async hub => {
		const w = word(), q = `?ok&${w}`
		assert.strictEqual((await hub.ask('ben', 'GET', '/api/drone/rosie/mode')).status, 200, 'rosie')
		const paths = [
			'fake/mode', 'rosie/../fake/mode', 'rosie/%2e%2e/fake/mode', 'rosie/mode/../../fake/mode', './fake/mode',
			'/fake/mode', '//fake//mode', 'fake%2Fmode', 'FAKE/mode', '%66ake/mode', 'rosie%0a/../fake/mode',
			'fake%20/mode', 'rosie%20fake/mode', 'rosie/%2e%2e%2ffake%2fmode', 'rosie;/../fake/mode',
			'rosie\\..\\fake/mode', 'rosie%00/mode', 'rosie@10.9.0.14/mode', '10.9.0.14/mode', 'rosie%0d%0a/mode',
		]
		for (const path of paths) {
			for (const method of ['GET', 'POST']) {
				const s = await hub.raw()
				s.write(`${method} /api/drone/${path}${q} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n` +
					`user-email: ${users.ben.email}\r\napi-key: ${users.ben.key}\r\n\r\n{}`)
				await within(10, path, s.over)
				assert.match(String(parsed(s.text).status), /^40[04]$/, `${path}: ${s.text}`)
			}
		}
		assert.deepStrictEqual(fake.named(w), [])
		const a = await hub.ask('ann', 'GET', '/api/drone/rosie/../fake/mode' + q)
		assert.strictEqual(a.status, 200, 'who may fly both')
	},

	'other names and paths are 404': async hub => {
		const paths = [
			'/', '/index.html', '/api', '/api/drone', '/api/drone/', '/api/drone/rosie', '/api/drone/rosie/',
			'/api/drone/start', '/api/drone/stop', '/api/drone/nobody/status', '/api/drone/bob/status/',
			'/api/drone/bob/x/status', '/api/drone/bob/arm', '/api/drone/bob/statuses', '/api/drone/status',
			'/x/api/drone/bob/status', '/api/mission', '/api/mission/1', '/mission', '/ssh/open', '/ssh/close',
			'/error', '/unanswered',
		]
		for (const path of paths) {
			for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
				answers(await hub.ask('ann', method, path, method === 'GET' ? '' : '{}'), 404, 'not_found', `${method} ${path}`)
			}
		}
		const w = word()
		for (const path of ['mode%20HTTP/1.1%0d%0ax:%20y', 'mode%3Fx', 'mode%0ax', 'mode%20x', 'mode;x', 'mode%25']) {
			answers(await hub.ask('ann', 'GET', `/api/drone/fake/${path}?ok&${w}`), 404, 'not_found', path)
		}
		assert.deepStrictEqual(fake.named(w), [])
	},

	'each operation has mavrest\'s own answer': async hub => {
		const ask = async (method, path, body, options) => {
			const direct = await amy.ask(method, '/' + path, body, options)
			const through = await hub.ask('ann', method, '/api/drone/amy/' + path, body, options)
			const own = ({ status, headers, text }) => {
				const rest = { ...headers }
				const ofHop = ['connection', 'date', 'server', 'keep-alive', 'content-length', 'transfer-encoding']
				for (const name of ofHop) delete rest[name]
				return [status, rest, text]
			}
			assert.deepStrictEqual(own(through), own(direct), `${method} ${path} ${body}`)
			return through
		}
		const statuses = new Set()
		for (const operation of operations) {
			const requests = [
				['PUT', '{}'], ['DELETE'], ['OPTIONS'], ['PATCH', '{}'],
				['POST', '{"x":1}'], ['POST', '{'], ['POST', '[]'], ['POST', '{"lat":91,"lon":0,"roll":2,"mode":7}'],
			]
			for (const [method, body] of requests) {
				if (operation === 'land' && !body) continue
				statuses.add((await ask(method, operation, body)).status)
			}
		}
		assert.ok([400, 405].every(s => statuses.has(s)) && !statuses.has(200), [...statuses].join())
		assert.match((await ask('DELETE', 'mode')).headers.allow, /POST/)
		await ask('POST', 'input', '{"roll":0}')
		await ask('GET', 'mode')
		await ask('POST', 'goto', '{"lat":0,"lon":0,"altitude":5000000}')
		await ask('GET', 'mode?x=1')
		assert.match((await ask('POST', 'takeoff?altitude=5', '{}')).json.error, /query/)
		const page = await ask('GET', 'status', '', { headers: { Accept: 'text/html' } })
		assert.match(page.headers['content-security-policy'], /frame-ancestors/)
		const head = await hub.ask('ann', 'HEAD', '/api/drone/amy/status')
		assert.deepStrictEqual([head.status, head.headers['content-type'], head.text], [200, 'application/json', ''])
		// One that succeeds.
		const a = await hub.ask('ann', 'POST', '/api/drone/amy/mode', '{"arm":false}')
		assert.deepStrictEqual([a.status, a.json.status], [200, 'accepted'], a.text)
	},

	'a body over 4 KiB is 413': async hub => {
		const body = n => '{' + ' '.repeat(n - 2) + '}', w = word()
		const direct = await amy.ask('POST', '/goto', body(4097))
		const chunks = { headers: { 'Transfer-Encoding': 'chunked' } }
		const asks = { headers: { Expect: '100-continue', 'Content-Length': 4097 } }
		const long = [['a length', {}], ['chunks', chunks], ['100-continue', asks]]
		for (const [how, options] of long) {
			const a = await hub.ask('ann', 'POST', `/api/drone/fake/goto?ok&${w}`, body(4097), options)
			answers(a, 413, 'too_large', how)
			assert.deepStrictEqual(a.json, direct.json)
		}
		answers(await hub.ask('ann', 'POST', `/api/drone/fake/goto?ok&${w}`, body(1_000_000)), 413, 'too_large', '1 MB')
		const s = await hub.session()
		try {
			for (const headers of [{}, { 'content-length': 4097 }]) {
				const a = await s.ask('ann', 'POST', `/api/drone/fake/goto?ok&${w}`, body(4097), headers)
				assert.strictEqual(a.status, 413, 'HTTP/2')
				assert.match(a.text, /"too_large"/, 'HTTP/2')
			}
		} finally { s.end() }
		assert.deepStrictEqual(fake.named(w), [])
		assert.strictEqual((await hub.ask('ann', 'POST', `/api/drone/fake/goto?ok&${w}`, body(4096))).status, 200)
		for (const options of [{}, chunks]) {
			assert.strictEqual((await hub.ask('ann', 'POST', `/api/drone/fake/goto?ok&${w}`, body(4096), options)).status, 200)
		}
	},

	'half a request never reaches the drone': async hub => {
		const w = word(), head = `Host: x\r\nuser-email: ${users.ann.email}\r\napi-key: ${users.ann.key}\r\n`
		const halves = [
			`POST /api/drone/fake/goto?ok&${w} HTTP/1.1\r\n${head}`,
			`POST /api/drone/fake/goto?ok&${w} HTTP/1.1\r\n${head}Content-Length: 20\r\n\r\n{"lat":1,`,
			`POST /api/drone/fake/goto?ok&${w} HTTP/1.1\r\n${head}Transfer-Encoding: chunked\r\n\r\n5\r\n{"lat`,
		]
		for (const half of halves) {
			const s = await hub.raw()
			s.write(half)
			await sleep(300)
			s.end()
			await within(10, 'the connection ends', s.over)
		}
		const s = await hub.session()
		const path = `/api/drone/fake/goto?ok&${w}`
		const r = s.request({ ':method': 'POST', ':path': path, ...users.ann.headers, 'content-length': 20 })
		r.on('error', () => {})
		r.write('{"lat":1,')
		await sleep(300)
		r.close(http2.constants.NGHTTP2_CANCEL)
		s.end()
		await sleep(300)
		assert.deepStrictEqual(fake.named(w).map(one => one.text), [])
	},

	'a body that pauses for 10 s is dropped': async hub => {
		const w = word(), s = await hub.raw()
		s.write(`POST /api/drone/fake/goto?ok&${w} HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n`)
		s.write(`user-email: ${users.ann.email}\r\napi-key: ${users.ann.key}\r\n\r\n{"lat":1,`)
		await within(15, 'the connection ends', s.over)
		assert.deepStrictEqual(fake.named(w), [])
	},

	'an event goes on at once': async hub => {
		const w = word()
		const events = async next => {
			for (let i = 0; i < 10; i++) {
				const one = await until('the request', () => fake.named(w)[0])
				one.socket.write(`data: ${i}\n\n`) // only when the one before has come
				await within(5, `event ${i}`, next(`data: ${i}\n\n`))
			}
		}
		const reader = stream => {
			let text = ''
			stream.on('data', data => { text += data })
			return want => until(want, () => text.endsWith(want))
		}
		const options = { ca, agent: false, headers: users.ann.headers }
		const r = https.request(`${hub.url}/api/drone/fake/status?events&${w}`, options)
		const answer = new Promise((done, failed) => r.once('response', done).once('error', failed))
		r.end()
		let next
		await events(async want => { await (next ??= reader(await answer))(want) })
		r.destroy()
		await until('the drone is left', () => fake.named(w).every(one => !one.open), 5)
	},

	'a client that leaves ends its wait': async hub => {
		const w = word(), path = `/api/drone/fake/takeoff?never&${w}`
		const options = { method: 'POST', ca, agent: false, headers: users.ann.headers }
		const r = https.request(hub.url + path, options).on('error', () => {})
		r.end('{"wait":600}')
		const [one] = await until('the request', () => fake.named(w).length && fake.named(w))
		await sleep(300)
		assert.ok(one.open)
		r.destroy()
		await until('HTTP/1.1: the wait ends', () => !one.open, 5)
		const s = await hub.session()
		const second = s.request({ ':method': 'POST', ':path': path, ...users.ann.headers }).on('error', () => {})
		second.end('{"wait":600}')
		const two = await until('the request', () => fake.named(w)[1])
		second.close(http2.constants.NGHTTP2_CANCEL)
		await until('HTTP/2: the wait ends', () => !two.open, 5)
		s.end()
	},

	'a command is sent once, and its lost answer is 409': async hub => {
		const agent = new https.Agent({ keepAlive: true, maxSockets: 1 })
		const s = await hub.session()
		try {
			for (const how of ['close', 'reset', 'cuthead']) {
				for (const nth of ['first', 'reused']) {
					const w = word(), path = `/api/drone/fake/goto?${how}&${w}`
					if (nth === 'reused') await hub.ask('ann', 'GET', '/api/drone/fake/mode', '', { agent })
					const a = await hub.ask('ann', 'POST', path, '{"lat":1,"lon":2}', { agent })
					assert.strictEqual(fake.named(w).length, 1, `${how}, ${nth}`)
					answers(a, 409, 'no_ack', how)
					const two = word()
					assert.strictEqual((await s.ask('ann', 'POST', path.replace(w, two), '{}')).status, 409)
					assert.strictEqual(fake.named(two).length, 1, `${how}, HTTP/2`)
					const read = await hub.ask('ann', 'GET', `/api/drone/fake/status?${how}&${word()}`)
					answers(read, 504, 'no_ack', `GET, ${how}`)
				}
			}
			for (const command of ['mode', 'input', 'takeoff', 'land']) {
				for (const how of ['close', 'reset', 'cuthead']) {
					const w = word()
					answers(await hub.ask('ann', 'POST', `/api/drone/fake/${command}?${how}&${w}`, '{}'), 409, 'no_ack', command)
					assert.strictEqual(fake.named(w).length, 1, `${how}, ${command}`)
				}
			}
			const w = word()
			const cut = hub.ask('ann', 'POST', `/api/drone/fake/goto?cut&${w}`, '{}')
			await assert.rejects(cut, 'a cut answer is not a whole one')
			assert.strictEqual(fake.named(w).length, 1, 'cut')
		} finally {
			s.end()
			agent.destroy()
		}
	},

	'a drone that is off is known soon, and nobody repeats a command for it': async hub => {
		for (const [name, seconds] of [['closed', 6], ['silent', 6]]) {
			const a = await within(seconds, name, hub.ask('ann', 'POST', `/api/drone/${name}/takeoff`, '{}'))
			answers(a, 409, 'offline', name)
			assert.match(a.json.error, /nothing was sent/)
			answers(await hub.ask('ann', 'GET', `/api/drone/${name}/status`), 503, 'offline', `GET, ${name}`)
		}
	},

	'a wait is not cut': async hub => {
		assert.ok(!/proxy_read_timeout (?!610s)/.test(hub.conf), 'a wait is at most 600 s')
		const a = await hub.ask('ann', 'POST', '/api/drone/fake/goto?late', '{"wait":600}')
		assert.strictEqual(a.status, 200, `after 65 s: ${a.text}`)
	},

	'a drone that vanishes ends a wait': async hub => {
		const ghost = await Ghost.start()
		const asked = hub.ask('ann', 'POST', `/api/drone/${ghost.name}/takeoff`, '{"wait":600}')
		asked.catch(() => {})
		await until('the ghost is asked', () => ghost.asked())
		ghost.leave()
		try {
			answers(await within(45, 'the wait ends', asked), 409, 'no_ack', 'a ghost')
		} finally { await ghost.end() }
	},

	'many clients are all answered': async hub => {
		const streams = []
		for (let i = 0; i < 12; i++) {
			const headers = { ...users.ann.headers, Accept: 'text/event-stream' }
			const r = https.request(`${hub.url}/api/drone/bob/status`, { ca, agent: false, headers })
			const one = { r, events: 0 }
			streams.push(one)
			const count = data => { one.events += String(data).split('event: status').length - 1 }
			r.on('error', () => {}).on('response', answer => answer.on('data', count)).end()
		}
		const ask = (_, i) => hub.ask(i % 2 ? 'ann' : 'cleo', 'GET', '/api/drone/bob/status')
		const all = await Promise.all(Array.from({ length: 100 }, ask))
		const count = all.filter(a => a.status === 200 && a.json.online !== undefined).length
		assert.strictEqual(count, 100, all.find(a => a.status !== 200)?.text)
		await until('each stream has events', () => streams.every(one => one.events > 2), 20)
		for (const { r } of streams) r.destroy()
	},

	'each user has an address of its own, and so who has the sticks holds': async hub => {
		const agent = new https.Agent({ keepAlive: true, maxSockets: 1 }) // both users' requests come on one connection
		try {
			for (let i = 0; i < 10; i++) {
				for (const [user, address] of [['ann', '10.9.0.101'], ['cleo', '10.9.0.102']]) {
					const w = word()
					await hub.ask(user, 'POST', `/api/drone/fake/input?ok&${w}`, '{}', { agent })
					assert.deepStrictEqual(fake.named(w).map(one => one.from), [address], `${user}'s request ${i}`)
				}
			}
			await takenOff(amy)
			assert.strictEqual((await hub.ask('ann', 'POST', '/api/drone/amy/mode', '{"mode":"position"}')).status, 200)
			const first = await hub.ask('ann', 'POST', '/api/drone/amy/input', '{"roll":0.1,"timeout":5}', { agent })
			assert.strictEqual(first.status, 200, first.text)
			const second = await hub.ask('cleo', 'POST', '/api/drone/amy/input', '{"roll":-0.1}', { agent })
			assert.strictEqual(second.status, 409, second.text)
			assert.match(second.json.error, /another client \(10\.9\.0\.101\) has the sticks/)
		} finally {
			agent.destroy()
		}
		assert.strictEqual((await amy.ask('POST', '/land', '{"wait":60}')).status, 200)
	},

	'the keys do not reach the drone': async hub => {
		const w = word(), { email, key } = users.ann
		await hub.ask('ann', 'GET', `/api/drone/fake/status?ok&${w}`)
		await hub.ask('', 'GET', `/api/drone/fake/status?ok&${w}`, '', { headers: basic(email, key) })
		for (const { text } of fake.named(w)) assert.doesNotMatch(text, /api-key|user-email|authorization/i)
		assert.strictEqual(fake.named(w).length, 2)
	},

	'HTTP/2 carries many streams and a command on one connection': async hub => {
		const s = await within(5, 'HTTP/2', hub.session())
		try {
			const w = word()
			const path = `/api/drone/fake/status?events&${w}`
			for (let i = 0; i < 20; i++) s.request({ ':path': path, ...users.ann.headers }).on('error', () => {})
			await until('twenty streams', () => fake.named(w).length === 20, 10)
			assert.strictEqual((await within(5, 'a command', s.ask('ann', 'POST', '/api/drone/fake/mode', '{}'))).status, 200)
		} finally { s.end() }
	},

	'nginx\'s own errors have mavrest\'s form': async hub => {
		const key = `Host: x\r\nConnection: close\r\nuser-email: ${users.ann.email}\r\napi-key: ${users.ann.key}\r\n`
		const requests = [
			[400, 'no HTTP\r\n\r\n'],
			[400, 'GET /api/drone/rosie/mode HTTP/1.1\r\n\r\n'],
			[400, `GET /../../x HTTP/1.1\r\n${key}\r\n`],
			[400, `POST /api/drone/rosie/mode HTTP/1.1\r\n${key}Content-Length: x\r\n\r\n`],
			[400, `GET /api/drone/rosie/mode HTTP/1.1\r\n${key}x: ${'x'.repeat(40_000)}\r\n\r\n`],
			[405, `TRACE /api/drone/rosie/mode HTTP/1.1\r\n${key}\r\n`],
			[400, 'CONNECT rosie:80 HTTP/1.1\r\nHost: rosie:80\r\n\r\n'],
			[414, `GET /${'x'.repeat(40_000)} HTTP/1.1\r\n${key}\r\n`],
			[501, `POST /api/drone/rosie/mode HTTP/1.1\r\n${key}Transfer-Encoding: zip\r\n\r\n`],
			[505, `GET /api/drone/rosie/mode HTTP/3.0\r\n${key}\r\n`],
		]
		for (const [status, request] of requests) {
			const s = await hub.raw()
			s.on('error', () => {}).write(request)
			await within(10, request.slice(0, 60), s.over)
			answers(parsed(s.text), status, 'bad_request', request.slice(0, 60))
		}
		// Plain HTTP.
		const text = await new Promise((done, failed) => {
			let text = ''
			net.connect(hub.port, '10.9.0.1').on('error', failed)
				.on('data', data => { text += data }).on('close', () => done(text))
				.end(`GET /api/drone/rosie/mode HTTP/1.1\r\n${key}\r\n`)
		})
		answers(parsed(text), 400, 'bad_request', 'plain HTTP')
		const a = await hub.ask('zoe', 'POST', '/api/drone/fake/mode', '{}')
		answers(a, 500, 'internal', 'a user whose address the hub lacks')
	},

	'a page of another origin can not command': async hub => {
		const site = name => ({ 'Sec-Fetch-Site': name })
		const foreign = [site('cross-site'), site('same-site'), { Origin: 'https://example.com' },
			{ Origin: hub.url + '0' }, { Origin: hub.url.replace('https', 'http') }]
		for (const headers of foreign) {
			const a = await hub.ask('ann', 'POST', '/api/drone/amy/goto', '{}', { headers })
			assert.deepStrictEqual([a.status, a.json?.code], [403, 'cross_origin'], a.text)
		}
		for (const headers of [{ 'Sec-Fetch-Site': 'same-origin', Origin: hub.url }, { Origin: hub.url }]) {
			const a = await hub.ask('ann', 'POST', '/api/drone/amy/goto', '{}', { headers })
			assert.notStrictEqual(a.status, 403, `the hub's own page: ${a.text}`)
		}
	},

	// An input is answered at once: nothing can be killed in it.
	'a mavrest that is killed in the middle of a command, and started again, gets no second one': async hub => {
		const aloft = () => hub.ask('ann', 'POST', '/api/drone/amy/takeoff', '{"altitude":5,"wait":60}')
		const north = '{"lat":47.4,"lon":8.545594,"wait":60}'
		for (const [path, body] of [['takeoff', '{"altitude":20,"wait":60}'], ['goto', north], ['land', '{"wait":60}'],
			['mode', '{"mode":"rtl","wait":60}']]) {
			await amy.until('it can be armed', s => s.armable)
			if (path !== 'takeoff') assert.strictEqual((await aloft()).status, 200, path)
			const asked = hub.ask('ann', 'POST', '/api/drone/amy/' + path, body)
			await amy.until(path + ' is under way', s => s.in_air && s.done === false)
			await amy.kill()
			await amy.start()
			answers(await within(5, 'an answer', asked), 409, 'no_ack', path)
			await amy.until('it can be armed', s => s.armable)
			const { mode, armed, in_air } = await amy.status()
			assert.deepStrictEqual([path, mode, armed, in_air], [path, 'manual', false, false])
		}
	},

	'examples/flight.py flies with a key': async hub => {
		const fly = (email, key) => new Promise(done => {
			const env = { ...process.env, SSL_CERT_FILE: work + '/fleet.pem', USER_EMAIL: email, API_KEY: key }
			const program = __dirname + '/../../examples/flight.py'
			const args = [program, hub.url + '/api/drone/bob']
			execFile('python3', args, { env }, (failed, out, err) => done({ failed, out, err }))
		})
		const refused = await fly(users.ann.email, users.ben.key)
		assert.deepStrictEqual([refused.failed?.code, refused.err], [1, 'api-key and user-email: missing or wrong\n'])
		const flown = await fly(users.ann.email, users.ann.key)
		assert.ok(!flown.failed, flown.err)
		assert.strictEqual(flown.out.match(/'done': True/g).length, 4, flown.out)
		const { mode, armed } = await bob.status()
		assert.deepStrictEqual([mode, armed], ['rtl', false])
	},

	'a reload cuts no wait, brings a new user, and ends a key that was taken back': async hub => {
		const asked = hub.ask('ann', 'POST', '/api/drone/fake/goto?soon', '{"wait":600}')
		asked.catch(() => {})
		const s = await hub.session()
		try {
			const stream = { ':path': '/api/drone/rosie/status', accept: 'text/event-stream', ...users.ben.headers }
			s.request(stream).on('error', () => {})
			assert.strictEqual((await s.ask('ben', 'GET', '/api/drone/rosie/mode')).status, 200)
			users.new = { headers: { 'user-email': 'new@example.org', 'api-key': '02' } }
			hub.write(conf => conf
				.replace(/map "\$http_user_email .* {/, '$&\n\t"new@example.org 02" new;')
				.replace('map "$user $drone" $source {', '$&\n\t"new rosie" 10.9.0.102;')
				.replace(/\t"ben@example.org .*\n/, ''))
			hub.reload()
			await until('the new user', async () => (await hub.ask('new', 'GET', '/api/drone/rosie/mode')).status === 200, 10)

			// Old workers accept for a moment beside the new ones.
			await until('the old key ends', async () => (await hub.ask('ben', 'GET', '/api/drone/rosie/mode')).status === 401, 10)
			assert.strictEqual((await asked).status, 200)
			await assert.rejects(s.ask('ben', 'GET', '/api/drone/rosie/mode'), /GOAWAY/, 'on a connection that has a stream')
		} finally { s.end() }
	},
}) }
