"""A mail server that insists on TLS and a login, and records each mail as a line of JSON.

Arguments: the file of the record, a free port, certificate and key; `starttls`, `tls` (from the
first byte) or `none` (it offers no TLS). Prints its port.
"""

import json
import signal
import ssl
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

record, port, certificate, key, encryption = sys.argv[1:]


class Handler:
    async def handle_DATA(self, server, session, envelope):
        text = envelope.content.decode()
        mail = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "text": text}
        mail["encrypted"] = session.ssl is not None or encryption == "tls"
        with open(record, "a") as lines:
            lines.write(json.dumps(mail) + "\n")
        return "250 OK"


def check(server, session, envelope, mechanism, data):
    is_right = (data.login, data.password) == (b"raid", b"secret")
    return AuthResult(success=is_right, handled=False)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
how = {
    "starttls": {"tls_context": context, "require_starttls": True},
    "tls": {"ssl_context": context, "auth_require_tls": False},
    "none": {"auth_require_tls": False},
}[encryption]
controller = Controller(
    Handler(),
    hostname="127.0.0.1",
    port=int(port),
    authenticator=check,
    auth_required=True,
    **how,
)
controller.start()
print(port, flush=True)
signal.pause()
