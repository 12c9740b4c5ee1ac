"""Frames of ATA over Ethernet, encoded by scapy: an encoder that shares nothing with ours.

    /usr/bin/python3 vectors.py > vectors.txt        (Debian: python3-scapy)

One line a frame: name, hexadecimal bytes. `../tests/vectors.rs` decodes and encodes each.
Flags are numbers, because scapy names their bits from the other end than the protocol does. The
counts of masks and reservations have two bytes in scapy 2.5, and one in the protocol (AoEr11,
vblade, Linux): that is corrected below.
"""

from scapy.contrib.aoe import (AOE, Directive, IssueATACommand, MacMaskList,
                               QueryConfigInformation, ReserveRelease)
from scapy.fields import FieldLenField
from scapy.layers.l2 import Ether

MacMaskList.fields_desc[3] = FieldLenField("dir_count", None, count_of="directives", fmt="B")
ReserveRelease.fields_desc[1] = FieldLenField("nb_mac", None, count_of="mac_addrs", fmt="B")

CLIENT, TARGET = "02:00:00:00:00:01", "02:00:00:00:00:02"
RESPONSE, ERROR = 8, 4
EXTENDED, WRITE = 0x40, 0x01


def request(command, tag, **body):
    return (Ether(dst=TARGET, src=CLIENT, type=0x88A2)
            / AOE(major=7, minor=2, cmd=command, tag=tag, **body))


def answer(command, tag, flags=RESPONSE, error=0, **body):
    return (Ether(dst=CLIENT, src=TARGET, type=0x88A2)
            / AOE(major=7, minor=2, cmd=command, tag=tag, flags=flags, error=error, **body))


def ata(flags, count, command, lba, data=b"", error=0):
    registers = {"lba%d" % at: (lba >> 8 * at) & 0xFF for at in range(6)}
    return {"i_ata_cmd": IssueATACommand(flags=flags, err_feature=error, sector_count=count,
                                         cmd_status=command, data=data, **registers)}


def query(directive, text=b"", **sizes):
    return {"q_conf_info": QueryConfigInformation(ccmd=directive, config=text, **sizes)}


def mask(command, *edits):
    directives = [Directive(dcmd=what, mac_addr=mac) for what, mac in edits]
    return {"mac_m_list": MacMaskList(mcmd=command, directives=directives)}


def reserve(command, *macs):
    return {"res_rel": ReserveRelease(rcmd=command, mac_addrs=list(macs))}


SECTORS = bytes(at * 7 & 0xFF for at in range(1024))
FRAMES = {
    "read": request(0, 0x00112233, **ata(EXTENDED, 2, 0x24, 0x0102030405)),
    "read-answer": answer(0, 0x00112233, **ata(EXTENDED, 0, 0x40, 0x0102030405, SECTORS)),
    "write": request(0, 0x7FFF0001, **ata(EXTENDED | WRITE, 2, 0x34, 0xFFFFFFFFFFFE, SECTORS)),
    "write-failed": answer(0, 0x7FFF0001,
                           **ata(EXTENDED | WRITE, 2, 0x41, 0xFFFFFFFFFFFE, error=0x40)),
    "identify": request(0, 0x80000001, **ata(0, 1, 0xEC, 0xA0000000)),
    "flush": request(0, 5, **ata(0, 0, 0xEA, 0xA0000000)),
    "query": request(1, 6, **query(0)),
    "query-answer": answer(1, 6, **query(0, b"tank", buffer_count=64, firmware=0x4321,
                                         sector_count=16, aoe=1)),
    "set": request(1, 7, **query(3, b"x" * 40)),
    "set-refused": answer(1, 7, RESPONSE | ERROR, 4, **query(3, b"x" * 40, aoe=1)),
    "mask-read": request(2, 8, **mask(0)),
    "mask-edit": request(2, 9, **mask(1, (1, CLIENT), (0, "00:00:00:00:00:00"), (2, TARGET))),
    "reserve-read": request(3, 10, **reserve(0)),
    "reserve-set": request(3, 11, **reserve(1, CLIENT, TARGET)),
    "release": request(3, 12, **reserve(2)),
}

if __name__ == "__main__":
    for name, frame in FRAMES.items():
        print(name, bytes(frame).hex())
