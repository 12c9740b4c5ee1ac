"""A web server that records what it is sent: one line of JSON for each POST.

Arguments: the file of the record; its port, 0 for any; for HTTPS, certificate and key. Prints its
port. `/broken` answers 500.
"""

import http.server
import json
import ssl
import sys

record, port, *tls = sys.argv[1:]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        token = self.headers["Authorization"]
        with open(record, "a") as lines:
            lines.write(json.dumps({"path": self.path, "token": token, "body": body}) + "\n")
        self.send_response(500 if self.path == "/broken" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", int(port)), Handler)
if tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
