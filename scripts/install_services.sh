#!/usr/bin/env bash
# Install what the tests drive: Slurm with its accounting, Grid Engine, Open MPI, pdsh, sshd, environment modules; and a
# headless Chromium, in which the tests open the HTML report.
# Acts only as root on Debian or Ubuntu; elsewhere it says so and ends well, and the tests that miss a program
# say which one. Nothing to do costs a few milliseconds.
set -euo pipefail

packages=(slurmctld slurmd slurm-client slurmdbd munge mariadb-server-core mariadb-client-core
          openmpi-bin openssh-server openssh-client pdsh iproute2 util-linux
          gridengine-master gridengine-exec gridengine-client)

# Lmod and environment-modules conflict in Debian: keep the one that is there.
[ -r /usr/share/lmod/lmod/init/bash ] || packages+=(environment-modules)
# Debian's python3 comes without ensurepip, which `python3 -m venv` needs.
"${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)

browsers=(chromium-headless-shell chromium google-chrome google-chrome-stable)
browser_there=no
for browser in "${HPCJOB_BROWSER:-}" "${browsers[@]}"; do
  [ -z "$browser" ] || ! command -v "$browser" >/dev/null || browser_there=yes
done

missing=()
if command -v dpkg-query >/dev/null; then
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qxF "ii $package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || [ $browser_there = no ] || exit 0
fi

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "install_services: not root on Debian or Ubuntu: nothing installed; cluster tests that miss a program are skipped"
  exit 0
fi

# The packages must not start their services: the tests start their own, in network namespaces.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
quietly() {
  "$@" >"$log" 2>&1 && return
  tail -n 20 "$log" >&2
  echo "install_services: failed: $*" >&2
  exit 1
}
quietly apt-get -o DPkg::Lock::Timeout=600 update
if [ $browser_there = no ]; then
  # Ubuntu has Chromium as a snap only, which a container cannot run.
  for package in chromium-headless-shell chromium none; do
    candidate=$(apt-cache policy "$package" | sed -n 's/^  Candidate: //p')
    [[ $candidate == [0-9]* && $candidate != *snap* ]] && missing+=("$package") && break
  done
  [ "$package" != none ] || echo "install_services: no package of Chromium here: name a browser in HPCJOB_BROWSER"
fi
[ ${#missing[@]} -gt 0 ] || exit 0
echo "install_services: apt-get install ${missing[*]}"
quietly apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}"
rm -f "$log"
