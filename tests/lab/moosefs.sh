#!/usr/bin/env bash
# A real MooseFS for the tests: a master and three chunkservers, one in each of three network namespaces, with three
# copies of all data, mounted from the host's namespace. It does not touch the machine's own MooseFS.
#
#   moosefs.sh up DIR          creates it (replaces a partial one); writes its addresses and paths to DIR/lab.env
#   moosefs.sh kill DIR NODE   kills the chunkserver of a node (1, 2 or 3)
#   moosefs.sh start DIR NODE  restarts it
#   moosefs.sh cut | join | throttle DIR NODE [RATE]   changes the link of a node, see common.sh
#   moosefs.sh down DIR        ends its daemons, removes mount, namespaces, links and DIR
#
# Needs root, FUSE, and the Debian packages moosefs-master, moosefs-chunkserver, moosefs-client, iproute2. BM_LAB_TAG
# and BM_LAB_NET (default bm and 10.94.9) separate two labs. A write is acknowledged from the chunkservers' page
# caches.
set -euo pipefail

verb=${1:?"up, kill, start, cut, join, throttle or down"}
lab=$(realpath -m "${2:?"a directory for the lab"}")
node=${3:-}
name=moosefs
tag=${BM_LAB_TAG:-bm}
net=${BM_LAB_NET:-10.94.9}
mount=$lab/mnt
# shellcheck source=tests/lab/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

is_mounted() { grep -Eqs "^mfs[^ ]* $mount fuse" /proc/mounts; }
unmount() { if is_mounted; then umount "$mount" 2> /dev/null || umount -l "$mount"; fi; }

# The client overwrites its command line with its mount.
lab_clients() {
    local pid
    for pid in $(pgrep -x mfsmount || true); do
        if grep -qsaF -- "(mounted on: $mount)" "/proc/$pid/cmdline"; then echo "$pid"; fi
    done
}

# Whether all three chunkservers are connected to the master.
all_connected() { [ "$(on_node 1 ss -Htn state established '( sport = :9420 )' | wc -l)" -ge 3 ]; }

takes_a_write() { echo x > "$mount/.probe" && sync "$mount/.probe" && rm "$mount/.probe"; }

# By default both daemons renice themselves to -19.
write_master() {
    mkdir -p "$lab/master"
    # An empty file system.
    printf 'MFSM NEW' > "$lab/master/metadata.mfs"
    echo "$net.0/24 / rw,alldirs,maproot=0" > "$lab/exports.cfg"
    : > "$lab/topology.cfg"
    cat > "$lab/master.cfg" << END
WORKING_USER = root
WORKING_GROUP = root
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
DATA_PATH = $lab/master
EXPORTS_FILENAME = $lab/exports.cfg
TOPOLOGY_FILENAME = $lab/topology.cfg
AUTH_CODE = lab
MATOML_LISTEN_HOST = $net.1
MATOCS_LISTEN_HOST = $net.1
MATOCL_LISTEN_HOST = $net.1
REPLICATIONS_DELAY_INIT = 5
END
}

start_chunkserver() {
    local home=$lab/node$1
    mkdir -p "$home"/{data,store}
    echo "$home/store -256MiB" > "$home/stores.cfg"
    cat > "$home/chunkserver.cfg" << END
WORKING_USER = root
WORKING_GROUP = root
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
DATA_PATH = $home/data
HDD_CONF_FILENAME = $home/stores.cfg
BIND_HOST = $net.$1
MASTER_HOST = $net.1
MASTER_RECONNECTION_DELAY = 1
AUTH_CODE = lab
CSSERV_LISTEN_HOST = $net.$1
END
    on_node "$1" mfschunkserver -c "$home/chunkserver.cfg" start >> "$lab/log" 2>&1
}

kill_chunkserver() {
    local pid
    for pid in $(ip netns pids "$tag$1"); do
        if [ "$(cat "/proc/$pid/comm")" = mfschunkserver ]; then kill -KILL "$pid"; fi
    done
}

up() {
    local number
    needs "moosefs-master moosefs-chunkserver moosefs-client" mfsmaster mfschunkserver mfsmount mfssetgoal
    make_nodes
    mkdir -p "$mount"
    write_master
    on_node 1 mfsmaster -c "$lab/master.cfg" start >> "$lab/log" 2>&1 || fail "no master; see $lab/log"
    for number in 1 2 3; do start_chunkserver "$number"; done
    await 30 "three chunkservers are connected" all_connected
    mfsmount "$mount" -H "$net.1" -o mfsnice=0,mfsallowoomkiller >> "$lab/log" 2>&1
    await 30 "the mount answers" stat "$mount/."
    mfssetgoal -r 3 "$mount" > /dev/null
    # The master allocates no chunk until its servers have reported their space.
    await 30 "a write goes through" takes_a_write
    write_facts "mount=$mount"
    note "mounted at $mount"
}

case $verb in
    up) up ;;
    kill) kill_chunkserver "$node" ;;
    start) start_chunkserver "$node" ;;
    cut | join | throttle) "$verb" "${@:3}" ;;
    down) down ;;
    *) fail "$verb: not one of up, kill, start, cut, join, throttle, down" ;;
esac
