"""A mail server that insists on STARTTLS and a login, and records each mail as a line of JSON.

Arguments: the file of the record, a free port, certificate and key. Prints its port.
"""

import json
import signal
import ssl
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

record, port, certificate, key = sys.argv[1:]


class Handler:
    async def handle_DATA(self, server, session, envelope):
        text = envelope.content.decode()
        mail = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "text": text}
        mail["encrypted"] = session.ssl is not None
        with open(record, "a") as lines:
            lines.write(json.dumps(mail) + "\n")
        return "250 OK"


def check(server, session, envelope, mechanism, data):
    is_right = (data.login, data.password) == (b"raid", b"secret")
    return AuthResult(success=is_right, handled=False)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
controller = Controller(
    Handler(),
    hostname="127.0.0.1",
    port=int(port),
    tls_context=context,
    require_starttls=True,
    authenticator=check,
    auth_required=True,
)
controller.start()
print(port, flush=True)
signal.pause()
