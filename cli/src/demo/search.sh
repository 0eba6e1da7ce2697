#!/bin/sh
# search.sh PLACE: the lines that name legacy_login. Each begin and each end is noted in
# a file of its own: there one sees how often a search has run.
echo began >>"searches/$1"
grep -rn legacy_login "$1"
if [ "$1" = tests ]; then
  echo "(half of it is searched)"
  # The slow one: it goes on when this file is there, or after a minute.
  tries=0
  while [ ! -e searches/go-on ] && [ $tries -lt 1200 ]; do
    sleep 0.05
    tries=$((tries + 1))
  done
  echo "(and the other half)"
fi
echo ended >>"searches/$1"
