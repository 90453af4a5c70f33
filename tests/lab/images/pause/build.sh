#!/bin/sh
# The pause program, alone.
set -eu
mkdir -p "$1"
cc -static -Os -s -o "$1/pause" pause.c
