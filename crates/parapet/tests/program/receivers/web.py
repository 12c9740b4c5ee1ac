"""A web server that records what it is sent: one line of JSON for each POST.

Arguments: the file of the record. Prints its port. `/broken` answers 500.
"""

import http.server
import json
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        token = self.headers["Authorization"]
        with open(sys.argv[1], "a") as record:
            record.write(json.dumps({"path": self.path, "token": token, "body": body}) + "\n")
        self.send_response(500 if self.path == "/broken" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
