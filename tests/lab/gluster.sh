#!/usr/bin/env bash
# A real GlusterFS for the tests: three storage nodes, each a network namespace with a glusterd of its own, one volume
# with three copies, mounted from the host's namespace. Nothing of the machine's own GlusterFS is touched.
#
#   gluster.sh up DIR        makes it (again, if half of one is there); writes what is where to DIR/lab.env
#   gluster.sh status DIR    exit 0 when mounted and all three bricks run
#   gluster.sh down DIR      ends its daemons, removes mount, namespaces, links and DIR
#
# Needs root, and the Debian packages glusterfs-server, glusterfs-client, iproute2. BM_LAB_TAG and BM_LAB_NET (default bg
# and 10.94.7) keep two labs apart. DIR must be short: a Unix socket below it has 108 bytes at most.
set -euo pipefail

verb=${1:?"up, status or down"}
lab=$(realpath -m "${2:?"a directory for the lab"}")
tag=${BM_LAB_TAG:-bg}
net=${BM_LAB_NET:-10.94.7}
volume=bench
mount=$lab/mnt
mark=$lab/.benchmesh-lab

note() { printf 'gluster lab: %s\n' "$*" >&2; }
fail() { note "$*"; exit 1; }

# await SECONDS WHAT COMMAND...: until the command succeeds.
await() {
    local seconds=$1 what=$2
    shift 2
    local deadline=$((SECONDS + seconds))
    until "$@" &> "$lab/await.log"; do
        if ((SECONDS >= deadline)); then
            cat "$lab/await.log" >&2
            fail "$what: not within $seconds s; logs are in $lab/node*/log"
        fi
        sleep 0.2
    done
}

gluster_cli() {
    gluster --mode=script --glusterd-sock="$lab/node1/run/d.sock" --log-file="$lab/cli.log" "$@"
}

is_mounted() { grep -qs " $mount fuse.glusterfs " /proc/mounts; }

# Every brick's line of the status ends with whether it is online, and its pid.
bricks_online() {
    [ "$(gluster_cli volume status "$volume" detail | grep -c '^Online *: Y')" -eq 3 ]
}

both_peers_connected() {
    [ "$(gluster_cli peer status | grep -c '(Connected)$')" -eq 2 ]
}

# Processes of the lab: whatever lives in its namespaces, and the client that serves its mount.
lab_pids() {
    local node client
    for node in 1 2 3; do
        ip netns pids "$tag$node" 2> /dev/null || true
    done
    client=$(cat "$lab/client.pid" 2> /dev/null || true)
    if [ -n "$client" ] && tr '\0' ' ' < "/proc/$client/cmdline" 2> /dev/null | grep -qF "$lab/client.pid"; then
        echo "$client"
    fi
}

end_processes() {
    local signal=$1 pids
    pids=$(lab_pids)
    # shellcheck disable=SC2086 # one word per pid
    [ -z "$pids" ] || kill "-$signal" $pids 2> /dev/null || true
}

add_node() {
    local node=$1
    ip netns add "$tag$node"
    ip link add "${tag}v$node" type veth peer name eth0 netns "$tag$node"
    ip link set "${tag}v$node" master "${tag}br" up
    ip -n "$tag$node" addr add "$net.$node/24" dev eth0
    ip -n "$tag$node" link set eth0 up
    ip -n "$tag$node" link set lo up
}

# glusterd keeps to directories of its own, or three of them would share /var/lib/glusterd and one socket.
# Without the two keepalive options it does not connect to its peers.
start_glusterd() {
    local node=$1 home=$lab/node$1
    mkdir -p "$home"/{work,log,run,brick}
    cat > "$home/glusterd.vol" << END
volume management
    type mgmt/glusterd
    option working-directory $home/work
    option run-directory $home/run
    option glusterd-sockfile $home/run/d.sock
    option cluster-test-mode $home/log
    option transport-type socket
    option transport.socket.bind-address $net.$node
    option transport.socket.listen-port 24007
    option transport.socket.keepalive-time 10
    option transport.socket.keepalive-interval 2
    option transport.socket.read-fail-log off
    option ping-timeout 0
    option event-threads 1
    option max-port 60999
end-volume
END
    ip netns exec "$tag$node" glusterd -f "$home/glusterd.vol" -l "$home/log/glusterd.log" -p "$home/run/glusterd.pid"
}

up() {
    local program node bricks=()
    for program in glusterd gluster glusterfs ip; do
        command -v "$program" > /dev/null || fail "no $program: install glusterfs-server, glusterfs-client and iproute2"
    done
    ((${#lab} < 60)) || fail "$lab is too long for the sockets below it"
    down
    mkdir -p "$mount"
    touch "$mark"
    ip link add "${tag}br" type bridge
    ip addr add "$net.254/24" dev "${tag}br"
    ip link set "${tag}br" up
    for node in 1 2 3; do
        add_node "$node"
        start_glusterd "$node"
        bricks+=("$net.$node:$lab/node$node/brick")
    done
    await 30 "node 2 joins" gluster_cli peer probe "$net.2"
    await 30 "node 3 joins" gluster_cli peer probe "$net.3"
    await 30 "the peers connect" both_peers_connected
    # force: bricks lie on the root file system, which GlusterFS refuses otherwise.
    gluster_cli volume create "$volume" replica 3 "${bricks[@]}" force >&2
    gluster_cli volume start "$volume" >&2
    await 30 "three bricks run" bricks_online
    glusterfs --volfile-server="$net.1" --volfile-id="/$volume" --log-file="$lab/client.log" \
        --pid-file="$lab/client.pid" "$mount"
    await 30 "the volume is mounted" is_mounted
    await 30 "the mount answers" stat "$mount/."
    {
        echo "mount=$mount"
        echo "host=$net.254"
        for node in 1 2 3; do
            echo "namespace$node=$tag$node"
            echo "brick$node=$lab/node$node/brick"
        done
    } > "$lab/lab.env"
    note "$volume is mounted at $mount"
}

down() {
    local node tries=0
    if is_mounted; then umount "$mount" 2> /dev/null || umount -l "$mount"; fi
    end_processes TERM
    while [ -n "$(lab_pids)" ] && ((tries++ < 25)); do sleep 0.2; done
    end_processes KILL
    for node in 1 2 3; do
        ip link del "${tag}v$node" 2> /dev/null || true
        ip netns del "$tag$node" 2> /dev/null || true
    done
    ip link del "${tag}br" 2> /dev/null || true
    # Only what this script has made.
    if [ -e "$mark" ]; then rm -rf --one-file-system "$lab"; fi
}

status() {
    if ! is_mounted; then fail "not mounted"; fi
    bricks_online || fail "not every brick runs"
    cat "$lab/lab.env"
}

case $verb in
    up) up ;;
    status) status ;;
    down) down ;;
    *) fail "$verb: not one of up, status, down" ;;
esac
