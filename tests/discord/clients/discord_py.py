"""discord.py against the stand-in: log in, receive, send, edit, obey a limit, resume."""

import asyncio
import os
import time

import aiohttp
import discord
import yarl

REST = os.environ["STANDIN_REST"]
TOKEN = "token-of-discord-py"
discord.http.Route.BASE = REST + "/api/v10"
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(os.environ["STANDIN_GATEWAY"])


def said(what):
    print("ok:", what, flush=True)


class Bot(discord.Client):
    def __init__(self):
        intents = discord.Intents.default()
        intents.message_content = True
        super().__init__(intents=intents)
        self.heard = asyncio.Queue()
        self.resumed = asyncio.Queue()
        self.readied = asyncio.Queue()

    async def on_ready(self):
        self.readied.put_nowait(True)

    async def on_resumed(self):
        self.resumed.put_nowait(True)

    async def on_message(self, message):
        if message.type == discord.MessageType.default and not message.author.bot:
            self.heard.put_nowait(message)


async def within(awaitable, seconds=30):
    return await asyncio.wait_for(awaitable, seconds)


async def main():
    async with aiohttp.ClientSession() as web:

        async def control(what, **body):
            async with web.post(f"{REST}/control/{what}", json=body) as answer:
                assert answer.status == 200, await answer.text()
                return (await answer.json()).get("id")

        owner = await control("users", name="ada")
        app = await control("applications", name="py", token=TOKEN, privileged=1 << 15)
        guild = await control("guilds", name="guild", owner=owner)
        channel = await control("channels", guild=guild, name="talk", kind=0)
        await control("members", guild=guild, user=app, roles=[])

        bot = Bot()
        task = asyncio.create_task(bot.start(TOKEN))
        await within(bot.readied.get())
        assert str(bot.user.id) == app and bot.get_guild(int(guild)).name == "guild"
        said("logs in and has the guild")

        await control("messages", channel=channel, author=owner, content="hello bot")
        message = await within(bot.heard.get())
        assert message.content == "hello bot" and str(message.author.id) == owner
        assert message.author.joined_at is not None
        said("receives a message with its member")

        answer = await within(message.reply("first", nonce="abc", mention_author=False))
        await within(answer.edit(content="second"))
        async with web.get(f"{REST}/control/messages/{channel}") as shown:
            last = (await shown.json())[-1]
        assert last["content"] == "second" and last["replyTo"] == str(message.id), last
        assert last["pings"] == {"everyone": False, "roles": [], "users": []}, last
        said("replies without a ping and edits")

        thread = await within(message.create_thread(name="a thread"))
        assert thread.id == message.id
        await within(thread.send("in the thread"))
        try:
            await within(message.create_thread(name="again"))
            raise AssertionError("a second thread on one message was allowed")
        except discord.HTTPException as refused:
            assert refused.code == 160004, refused
        try:
            await within(answer.edit(content="x" * 2001))
            raise AssertionError("2001 characters were allowed")
        except discord.HTTPException as refused:
            assert refused.code == 50035, refused
        said("opens a thread once, and is refused what Discord refuses")

        # Another process with the same token uses the channel's bucket up.
        url = f"{REST}/api/v10/channels/{channel}/messages"
        headers = {"authorization": f"Bot {TOKEN}"}
        while True:
            async with web.post(url, json={"content": "flood"}, headers=headers) as answer:
                if answer.status == 429:
                    assert answer.headers["x-ratelimit-scope"] == "user"
                    wait = (await answer.json())["retry_after"]
                    break
        before = time.monotonic()
        await within(bot.get_channel(int(channel)).send("after the limit"))
        waited = time.monotonic() - before
        assert waited >= wait * 0.9, (waited, wait)
        said(f"waited {waited:.1f} s for the limit")

        history = [m async for m in bot.get_channel(int(channel)).history(limit=3, oldest_first=False)]
        assert history[0].content == "after the limit"
        assert history[0].nonce is None
        said("reads history, which has no nonce")

        await control("gateway", act="cut")
        await control("messages", channel=channel, author=owner, content="while you were away")
        await within(bot.resumed.get())
        missed = await within(bot.heard.get())
        assert missed.content == "while you were away" and bot.heard.empty()
        said("resumes after a cut and gets what it missed, once")

        await control("gateway", act="reconnect")
        await within(bot.resumed.get())
        said("resumes after opcode 7")

        await control("gateway", act="invalid")
        await within(bot.readied.get(), 60)
        await control("messages", channel=channel, author=owner, content="a new session")
        assert (await within(bot.heard.get())).content == "a new session"
        said("identifies again after opcode 9")

        await bot.close()
        await within(asyncio.gather(task, return_exceptions=True))


asyncio.run(main())
