"""A mail server on port 25 and a web server on port 8080 that record what they are told.

Arguments: the files of the mails and of the posts. Prints a line when both listen.
"""

import http.server
import sys

from aiosmtpd.controller import Controller

mails, posts = sys.argv[1:]


class Mail:
    async def handle_DATA(self, server, session, envelope):
        with open(mails, "a") as record:
            record.write(envelope.content.decode() + "\n")
        return "250 OK"


class Web(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        with open(posts, "a") as record:
            record.write(body + "\n")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


Controller(Mail(), hostname="127.0.0.1", port=25).start()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Web)
print("listening", flush=True)
server.serve_forever()
