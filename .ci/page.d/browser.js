// Runs a headless Chromium through its DevTools protocol, over a pipe, without dependencies.
'use strict'
const { spawn } = require('node:child_process')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')

const sleep = ms => new Promise(done => setTimeout(done, ms))

// until waits until look returns something true. A loaded machine may take long.
async function until(what, look, seconds = 30) {
	const end = Date.now() + seconds * 1000
	let last
	while (Date.now() < end) {
		last = await look()
		if (last) return last
		await sleep(50)
	}
	throw new Error(`not within ${seconds} s: ${what}`)
}

const keys = { // code: [Windows' key code, key (else the code), text]
	Tab: [9], Escape: [27], Enter: [13, 'Enter', '\r'], Space: [32, ' ', ' '], Shift: [16],
	KeyW: [87, 'w', 'w'], KeyA: [65, 'a', 'a'], KeyS: [83, 's', 's'], KeyD: [68, 'd', 'd'],
	ArrowLeft: [37], ArrowUp: [38], ArrowRight: [39], ArrowDown: [40],
}

class Browser {
	// start takes further flags of Chromium.
	static async start(...flags) {
		const b = new Browser()
		b.profile = fs.mkdtempSync(path.join(os.tmpdir(), 'chromium-'))
		b.process = spawn('chromium', [
			'--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-dev-shm-usage',
			'--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-proxy-server',
			// A browser without a screen still draws the popups of its address bar, each a page, in each window.
			'--disable-features=WebUIOmniboxPopup,WebUIOmniboxFullPopup,WebUIOmniboxAimPopup',
			'--force-color-profile=srgb', '--hide-scrollbars', '--remote-debugging-pipe', `--user-data-dir=${b.profile}`, ...flags, 'about:blank',
		], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'], detached: true })
		b.waiting = new Map()
		b.sessions = new Map()
		b.last = 0
		let rest = ''
		b.process.stdio[3].on('error', () => {}) // the browser has ended
		b.process.stdio[4].setEncoding('utf8').on('data', text => {
			const parts = (rest + text).split('\0')
			rest = parts.pop()
			for (const part of parts) b.heard(JSON.parse(part))
		})
		b.process.once('exit', () => {
			for (const { failed, method } of b.waiting.values()) failed(new Error(method + ': the browser has ended'))
		})
		await b.send('Browser.getVersion')
		return b
	}

	heard(m) {
		if (m.id) {
			const { done, failed, method } = this.waiting.get(m.id)
			this.waiting.delete(m.id)
			if (m.error) failed(new Error(`${method}: ${m.error.message}`))
			else done(m.result)
		} else {
			this.sessions.get(m.sessionId)?.heard(m)
		}
	}

	send(method, params = {}, sessionId) {
		const id = ++this.last
		this.process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + '\0')
		return new Promise((done, failed) => this.waiting.set(id, { done, failed, method }))
	}

	// open shows a page in a window of its own, or in a tab of another page's window. login
	// is the name and the password that a person would type when the browser asks.
	async open(url, options = {}) {
		const { targetId } = await this.send('Target.createTarget', { url: 'about:blank', newWindow: !options.tab })
		const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true })
		const p = new Page(this, targetId, sessionId)
		this.sessions.set(sessionId, p)
		await p.prepare(options)
		await p.go(url)
		return p
	}

	async end() {
		const over = new Promise(done => this.process.once('exit', done))
		try { process.kill(-this.process.pid, 'SIGKILL') } catch {}
		await over
		fs.rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 })
	}
}

class Page {
	constructor(browser, target, session) {
		Object.assign(this, { browser, target, session, requests: [], faults: [], logged: [], loads: 0, logins: 0 })
	}

	send(method, params) { return this.browser.send(method, params, this.session) }

	heard({ method, params }) {
		if (method === 'Network.requestWillBeSent') this.requests.push(params.request.url)
		if (method === 'Runtime.exceptionThrown') this.faults.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text)
		if (method === 'Page.loadEventFired') this.loads++
		if (method === 'Fetch.requestPaused') this.send('Fetch.continueRequest', { requestId: params.requestId }).catch(() => {})
		if (method === 'Fetch.authRequired') this.logIn(params.requestId)
		if (method === 'Log.entryAdded') {
			this.logged.push(params.entry.text)
			if (/Content Security Policy/.test(params.entry.text)) this.faults.push(params.entry.text)
		}
	}

	// logIn answers the browser's question for a name and a password. It gives up when it is asked again.
	logIn(requestId) {
		this.logins++
		const [username, password] = this.login
		const response = this.logins === 1 ? 'ProvideCredentials' : 'CancelAuth'
		const authChallengeResponse = { response, username, password }
		this.send('Fetch.continueWithAuth', { requestId, authChallengeResponse }).catch(() => {}) // the page may be gone
	}

	async prepare({ width = 1280, height = 800, touch = false, media = {}, scripts = [], focus = true, login }) {
		this.login = login
		for (const domain of ['Page', 'Runtime', 'Network', 'Log']) await this.send(domain + '.enable')
		await this.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: touch })
		await this.send('Emulation.setTouchEmulationEnabled', { enabled: touch, maxTouchPoints: touch ? 5 : 1 })
		await this.send('Emulation.setEmulatedMedia', { features: Object.entries(media).map(([name, value]) => ({ name, value })) })
		// Each window acts as the one in front; but then no tab is ever hidden.
		await this.send('Emulation.setFocusEmulationEnabled', { enabled: focus })
		if (login) await this.send('Fetch.enable', { handleAuthRequests: true })
		for (const source of scripts) await this.send('Page.addScriptToEvaluateOnNewDocument', { source })
	}

	async go(url) {
		const loads = this.loads
		await this.send('Page.navigate', { url })
		await until(`${url} loads`, () => this.loads > loads)
	}

	// eval calls a function in the page.
	async eval(f, ...args) {
		const r = await this.send('Runtime.evaluate', {
			expression: `(${f})(...${JSON.stringify(args)})`, awaitPromise: true, returnByValue: true,
		})
		if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description ?? r.exceptionDetails.text)
		return r.result.value
	}

	async until(what, f, args = [], seconds = 30) {
		let error = '' // of the last look: while the page loads, its elements may be missing
		const look = () => this.eval(f, ...args).catch(e => { error = e.message })
		try {
			return await until(what, look, seconds)
		} catch (e) {
			const seen = await this.eval(() => document.body.innerText.slice(0, 1200)).catch(() => '')
			throw new Error(`${e.message}\n${error}\nfaults: ${this.faults}\nthe page:\n${seen}`)
		}
	}

	// shows waits until an element's text matches.
	shows(id, pattern, seconds) {
		const { source, flags } = new RegExp(pattern)
		return this.until(`#${id} shows ${pattern}`, (id, source, flags) => {
			const text = document.getElementById(id).textContent
			return new RegExp(source, flags).test(text) && (text || ' ') // an empty text may match too
		}, [id, source, flags], seconds)
	}

	text(id) { return this.eval(id => document.getElementById(id).textContent, id) }

	// spot returns the middle of an element on the screen.
	spot(selector) {
		return this.eval(selector => {
			const e = document.querySelector(selector)
			const seen = () => {
				const b = e.getBoundingClientRect(), x = b.x + b.width / 2, y = b.y + b.height / 2
				return { x, y, hit: document.elementFromPoint(x, y) }
			}
			let s = seen()
			if (!e.contains(s.hit)) {
				e.scrollIntoView({ block: 'center', behavior: 'instant' })
				s = seen()
			}
			if (!e.contains(s.hit)) throw new Error(selector + ' is covered by ' + s.hit?.outerHTML.slice(0, 80))
			return { x: s.x, y: s.y }
		}, selector)
	}

	mouse(type, { x, y }) {
		if (type !== 'mouseMoved') this.down = type === 'mousePressed'
		return this.send('Input.dispatchMouseEvent', {
			type, x, y, button: type === 'mouseMoved' && !this.down ? 'none' : 'left', buttons: this.down ? 1 : 0, clickCount: type === 'mouseMoved' ? 0 : 1,
		})
	}

	async click(selector, by = { x: 0, y: 0 }) {
		const at = await this.spot(selector), to = { x: at.x + by.x, y: at.y + by.y }
		await this.mouse('mouseMoved', to)
		await this.mouse('mousePressed', to)
		await this.mouse('mouseReleased', to)
	}

	// press keeps the button down until something is so.
	async press(selector, so) {
		const at = await this.spot(selector)
		await this.mouse('mouseMoved', at)
		await this.mouse('mousePressed', at)
		try { await so() } finally { await this.mouse('mouseReleased', at) }
	}

	touch(type, points) { return this.send('Input.dispatchTouchEvent', { type, touchPoints: points.map((p, id) => ({ ...p, id })) }) }

	key(type, code, more = {}) {
		const [number, key = code, text] = keys[code]
		return this.send('Input.dispatchKeyEvent', {
			type: type === 'up' ? 'keyUp' : text ? 'keyDown' : 'rawKeyDown', code, key, windowsVirtualKeyCode: number, ...(type === 'down' && text ? { text } : {}), ...more,
		})
	}

	async type(selector, text) {
		await this.eval(selector => { const e = document.querySelector(selector); e.focus(); e.select() }, selector)
		await this.send('Input.insertText', { text })
	}

	async picture(file) {
		const { data } = await this.send('Page.captureScreenshot', { format: 'png' })
		fs.writeFileSync(file, Buffer.from(data, 'base64'))
	}

	front() { return this.browser.send('Target.activateTarget', { targetId: this.target }) }

	async close() {
		this.browser.sessions.delete(this.session)
		await this.browser.send('Target.closeTarget', { targetId: this.target })
	}
}

module.exports = { Browser, until, sleep }
