//! Models of disks: when does a disk answer?
