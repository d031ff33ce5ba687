// The points that need a browser: Chromium, by HTTPS.
'use strict'
const http = require('node:http')
const { Browser } = require('../page.d/browser.js')
const { fake, word, users, until, sleep, assert } = require('./world.js')

const long = 90 // seconds: a takeoff or a landing on a loaded machine
const login = name => [users[name].email, users[name].key]
const north = (s, from) => (s.position.lat - from.position.lat) * 111319.5

// inBrowser runs something in a browser. The hub's certificate is the test's own.
async function inBrowser(flags, run) {
	const browser = await Browser.start('--ignore-certificate-errors', ...flags)
	try {
		return await run(browser)
	} finally { await browser.end() }
}

// listening is a script that keeps what the page answers: it shows an answer for some seconds only.
const listening = `document.addEventListener('DOMContentLoaded', () => {
	window.kept = []
	const answer = document.getElementById('answer')
	new MutationObserver(() => kept.push(answer.textContent)).observe(answer, { childList: true, subtree: true })
})`

// answered waits for a command's answer.
async function answered(page, label) {
	const find = label => kept.find(a => a.startsWith(label) && !a.includes('under way'))
	await page.until(`${label} is answered`, find, [label], long)
	return page.eval(find, label)
}

// commanded gives a command, and waits until it is done. meanwhile runs while it is under way.
// On a loaded machine the page may be without contact for a moment; then a person would try again.
async function commanded(page, label, give, meanwhile = () => {}) {
	await until(label + ' is sent', async () => {
		await page.eval(() => { kept.length = 0 })
		await give()
		await page.until(label + ' is given', label => kept.some(a => a.startsWith(label)), [label])
		return !await page.eval(() => kept.some(a => a.includes('was not sent')))
	})
	await meanwhile()
	assert.match(await answered(page, label), RegExp(`^${label}: done`))
}

// flown flies a page's drone: up, to a place on the map, hold, sticks, and down. away is
// called in the air.
async function flown(page, drone, away) {
	await page.shows('ready', 'can take off', long)
	await page.type('#up', '5')
	await commanded(page, 'Take off', () => page.press('#takeoff', () => page.shows('answer', '^Take off: ')))
	await away()

	await page.click('#map', { x: 60, y: -60 })
	await page.until('how far it is', () => /^[0-9.]+.m · /.test(document.querySelector('#goto small').textContent))
	await commanded(page, 'Fly there', () => page.click('#goto'), () =>
		page.until('the map shows the target', () => !document.getElementById('target').classList.contains('gone')))
	const { position, home } = await drone.status()
	assert.ok(position.lat > home.lat && position.lon > home.lon, 'north-east of home, where it was clicked')
	await commanded(page, 'Hold', () => page.click('#hold'))

	await commanded(page, 'Position', () => page.click('[data-mode=position]'))
	const from = await drone.status()
	const at = await page.spot('#right')
	await page.mouse('mousePressed', at)
	await page.mouse('mouseMoved', { x: at.x, y: at.y - 45 })
	await page.shows('by', '^this page$')
	assert.strictEqual((await drone.status()).input.from, '10.9.0.101', 'the sticks are ann\'s')
	await drone.until('it flies north', s => north(s, from) > 3)
	await page.mouse('mouseReleased', at)
	await drone.until('it has stopped', s => s.velocity.ground_speed < 0.5)
	await page.shows('by', '^nobody')

	await commanded(page, 'Land', () => page.click('#land'))
	await page.shows('doing', '^Landed$')
	assert.strictEqual((await drone.status()).armed, false)
}

module.exports = ({ dora, amy }) => ({
	'Chromium: one login, and the page flies; its drone leaves the network and comes back': hub =>
	inBrowser([], async browser => {
		const url = `${hub.url}/api/drone/dora/status`
		const page = await browser.open(url, { login: login('ann'), scripts: [listening] })
		assert.strictEqual(page.logins, 1, 'the browser asks for a login')
		await page.shows('fact-mode', '^manual$')
		await page.send('Fetch.disable') // from here on nobody would answer a second question
		await flown(page, dora, async () => {
			dora.cut()
			await page.shows('banner', /^No contact with mavrest since/)
			await page.click('#hold')
			await page.shows('answer', /^Hold: the drone can not be reached; nothing was sent/)
			const before = await dora.mode()
			dora.join()
			await page.shows('banner', '^$', 30)
			assert.strictEqual((await dora.status()).mode, before, 'the hold that was not sent does not come')
		})
		assert.deepStrictEqual(page.faults, [])
		const own = r => r.startsWith(`${hub.url}/api/drone/dora/`) || r.startsWith('data:')
		assert.deepStrictEqual(page.requests.filter(r => !own(r)), [])
	}),

	'Chromium: a wrong key gets no page, and a key for some drones only theirs': hub => inBrowser([], async browser => {
		const wrong = await browser.open(`${hub.url}/api/drone/rosie/status`, { login: [users.ann.email, users.ben.key] })
		assert.strictEqual(wrong.logins, 2, 'it asks again')
		assert.match(await wrong.eval(() => document.body.innerText), /"code":"unauthorized"/)
		await wrong.close()
		const page = await browser.open(`${hub.url}/api/drone/rosie/status`, { login: login('ben') })
		await page.shows('fact-mode', /./)
		await page.go(`${hub.url}/api/drone/bob/status`)
		assert.match(await page.eval(() => document.body.innerText), /"code":"not_found"/)
	}),

	'Chromium: a command is sent once': async hub => {
		for (const flags of [[], ['--disable-http2']]) {
			await inBrowser(flags, async browser => {
				const page = await browser.open(hub.url + '/')
				for (const how of ['close', 'reset', 'cuthead', 'cut']) {
					for (const nth of ['first', 'reused']) {
						const w = word()
						const status = await page.eval(async (path, headers, before) => {
							if (before) await (await fetch('/api/drone/fake/mode', { headers })).text()
							return fetch(path, { method: 'POST', body: '{"lat":1,"lon":2}', headers }).then(r => r.status, e => e.name)
						}, `/api/drone/fake/goto?${how}&${w}`, users.ann.headers, nth === 'reused')
						assert.strictEqual(fake.named(w).length, 1, `${how}, ${nth}, ${flags}`)
						if (how !== 'cut') assert.strictEqual(status, 409, `${how}, ${nth}`)
					}
				}
			})
		}
	},

	'Chromium: a page of another origin can not command': hub => inBrowser([], async browser => {
		const own = await browser.open(`${hub.url}/api/drone/amy/status`, { login: login('ann') })
		await own.shows('fact-mode', /./)
		const server = http.createServer((q, r) => {
			r.writeHead(200, { 'Content-Type': 'text/html' }).end('<title>stranger</title>')
		})
		await new Promise(done => server.listen(0, '127.0.0.1', done))
		try {
			const stranger = await browser.open(`http://localhost:${server.address().port}/`)
			const before = await amy.mode()
			const types = await stranger.eval(async (url, authorization) => {
				const command = { method: 'POST', body: '{"mode":"altitude"}' }
				const ask = options => fetch(url, { ...command, ...options }).then(r => r.type, e => e.name)
				return [
					await ask({ mode: 'no-cors', credentials: 'include' }), await ask({ credentials: 'include' }),
					await ask({ headers: { Authorization: authorization } }),
					await ask({ headers: { 'Content-Type': 'application/json' } }),
				]
			}, `${hub.url}/api/drone/amy/mode`, 'Basic ' + btoa(login('ann').join(':')))
			assert.deepStrictEqual(types, ['opaque', 'TypeError', 'TypeError', 'TypeError'])
			await sleep(300)
			assert.strictEqual(await amy.mode(), before)
		} finally {
			server.close()
			server.closeAllConnections()
		}
	}),
})
