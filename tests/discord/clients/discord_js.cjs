// discord.js against the stand-in: log in, receive, send, edit, obey a limit, resume.
'use strict';

const assert = require('node:assert/strict');
const { Client, Events, GatewayIntentBits } = require('discord.js');

const REST = process.env.STANDIN_REST;
const TOKEN = 'token-of-discord-js';
const said = (what) => console.log('ok:', what);

async function control(what, body) {
  const answer = await fetch(`${REST}/control/${what}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return JSON.parse(text).id;
}

/** Collects events, so that one that came early is not missed. */
function inbox(client, event, keep = () => true) {
  const waiting = [];
  const come = [];
  client.on(event, (value) => {
    if (!keep(value)) return;
    if (waiting.length > 0) waiting.shift()(value);
    else come.push(value);
  });
  return {
    size: () => come.length,
    next: (ms = 60_000) => new Promise((resolve, reject) => {
      if (come.length > 0) return resolve(come.shift());
      const late = setTimeout(() => reject(new Error(`no ${event} within ${ms} ms`)), ms);
      waiting.push((value) => { clearTimeout(late); resolve(value); });
    }),
  };
}

async function main() {
  const owner = await control('users', { name: 'grace' });
  const app = await control('applications', { name: 'js', token: TOKEN, privileged: 1 << 15 });
  const guild = await control('guilds', { name: 'guild', owner });
  const channelId = await control('channels', { guild, name: 'talk', kind: 0 });
  await control('members', { guild, user: app, roles: [] });

  const client = new Client({
    intents: [GatewayIntentBits.Guilds, GatewayIntentBits.GuildMessages, GatewayIntentBits.MessageContent],
    rest: { api: `${REST}/api` },
  });
  client.on('error', (error) => console.error('client error:', error.message));
  const ready = inbox(client, Events.ClientReady);
  const shardReady = inbox(client, Events.ShardReady);
  const resumed = inbox(client, Events.ShardResume);
  const heard = inbox(client, Events.MessageCreate, (message) => !message.author.bot && !message.system);
  const limited = inbox(client.rest, 'rateLimited');
  await client.login(TOKEN);
  await ready.next();
  await shardReady.next();
  assert.equal(client.user.id, app);
  said('logs in');

  await control('messages', { channel: channelId, author: owner, content: 'hello bot' });
  const message = await heard.next();
  assert.equal(message.content, 'hello bot');
  assert.equal(message.author.id, owner);
  said('receives a message');

  const answer = await message.reply({ content: 'first', nonce: 'n-1', enforceNonce: true, allowedMentions: { parse: [], repliedUser: false } });
  const again = await message.channel.send({ content: 'first', nonce: 'n-1', enforceNonce: true });
  assert.equal(again.id, answer.id, 'an enforced nonce gives the first message again');
  await answer.edit('second');
  const shown = await (await fetch(`${REST}/control/messages/${channelId}`)).json();
  assert.equal(shown.at(-1).content, 'second');
  assert.deepEqual(shown.at(-1).pings, { everyone: false, roles: [], users: [] });
  said('replies once for one nonce, and edits');

  await assert.rejects(message.channel.send({ content: 'x', nonce: 'n'.repeat(26) }), (error) => error.code === 50035);
  await assert.rejects(message.channel.messages.fetch('1'), (error) => error.code === 10008);
  const thread = await message.startThread({ name: 'a thread' });
  assert.equal(thread.id, message.id);
  await thread.send('in the thread');
  await control('archive', { thread: thread.id, archived: true });
  const inThread = (await thread.messages.fetch({ limit: 1 })).first();
  await assert.rejects(inThread.edit('late'), (error) => error.code === 50083);
  said('is refused what Discord refuses');

  let wait;
  for (;;) {
    const flood = await fetch(`${REST}/api/v10/channels/${channelId}/messages`, {
      method: 'POST',
      headers: { authorization: `Bot ${TOKEN}`, 'content-type': 'application/json' },
      body: JSON.stringify({ content: 'flood' }),
    });
    if (flood.status === 429) {
      wait = (await flood.json()).retry_after;
      break;
    }
  }
  const before = performance.now();
  await (await client.channels.fetch(channelId)).send('after the limit');
  const waited = (performance.now() - before) / 1000;
  assert.ok(waited >= wait * 0.9, `${waited} < ${wait}`);
  await limited.next();
  said(`waited ${waited.toFixed(1)} s for the limit`);

  await control('gateway', { act: 'cut' });
  await control('messages', { channel: channelId, author: owner, content: 'while you were away' });
  await resumed.next();
  assert.equal((await heard.next()).content, 'while you were away');
  assert.equal(heard.size(), 0);
  said('resumes after a cut and gets what it missed, once');

  await control('gateway', { act: 'reconnect' });
  await resumed.next();
  said('resumes after opcode 7');

  await control('gateway', { act: 'invalid' });
  await shardReady.next();
  await control('messages', { channel: channelId, author: owner, content: 'a new session' });
  assert.equal((await heard.next()).content, 'a new session');
  said('identifies again after opcode 9');
  await client.destroy();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
