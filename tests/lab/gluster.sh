#!/usr/bin/env bash
# A real GlusterFS for the tests: three storage nodes, each a network namespace with its own glusterd, and one volume
# with three copies, mounted from the host's namespace. It does not touch the machine's own GlusterFS.
#
#   gluster.sh up DIR        creates it (replaces a partial one); writes its addresses and paths to DIR/lab.env
#   gluster.sh status DIR    exit code 0 if it is mounted and all three bricks run
#   gluster.sh cut | join | throttle DIR NODE [RATE]   changes the link of a node (1, 2 or 3), see common.sh
#   gluster.sh down DIR      ends its daemons, removes mount, namespaces, links and DIR
#
# Needs root, and the Debian packages glusterfs-server, glusterfs-client, iproute2. BM_LAB_TAG and BM_LAB_NET (default
# bg and 10.94.7) separate two labs. DIR must be short: the path of a Unix socket has at most 108 bytes.
set -euo pipefail

verb=${1:?"up, status, cut, join, throttle or down"}
lab=$(realpath -m "${2:?"a directory for the lab"}")
name=gluster
tag=${BM_LAB_TAG:-bg}
net=${BM_LAB_NET:-10.94.7}
volume=bench
mount=$lab/mnt
# shellcheck source=tests/lab/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

gluster_cli() {
    gluster --mode=script --glusterd-sock="$lab/node1/run/d.sock" --log-file="$lab/cli.log" "$@"
}

is_mounted() { grep -qs " $mount fuse.glusterfs " /proc/mounts; }

# The status line of each brick ends with its online state and its pid.
bricks_online() {
    [ "$(gluster_cli volume status "$volume" detail | grep -c '^Online *: Y')" -eq 3 ]
}

both_peers_connected() {
    [ "$(gluster_cli peer status | grep -c '(Connected)$')" -eq 2 ]
}

unmount() { if is_mounted; then umount "$mount" 2> /dev/null || umount -l "$mount"; fi; }

# The client process of its mount.
lab_clients() {
    local client
    client=$(cat "$lab/client.pid" 2> /dev/null || true)
    if [ -n "$client" ] && tr '\0' ' ' < "/proc/$client/cmdline" 2> /dev/null | grep -qF "$lab/client.pid"; then
        echo "$client"
    fi
}

# Each glusterd gets its own directories; otherwise all three would share /var/lib/glusterd and one socket.
# It does not connect to its peers without the two keepalive options.
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
    on_node "$node" glusterd -f "$home/glusterd.vol" -l "$home/log/glusterd.log" -p "$home/run/glusterd.pid"
}

up() {
    local node bricks=()
    needs "glusterfs-server glusterfs-client" glusterd gluster glusterfs
    make_nodes
    mkdir -p "$mount"
    for node in 1 2 3; do
        start_glusterd "$node"
        bricks+=("$net.$node:$lab/node$node/brick")
    done
    await 30 "node 2 joins" gluster_cli peer probe "$net.2"
    await 30 "node 3 joins" gluster_cli peer probe "$net.3"
    await 30 "the peers connect" both_peers_connected
    # force: the bricks are on the root file system, which GlusterFS refuses otherwise.
    gluster_cli volume create "$volume" replica 3 "${bricks[@]}" force >&2
    gluster_cli volume start "$volume" >&2
    await 30 "three bricks run" bricks_online
    glusterfs --volfile-server="$net.1" --volfile-id="/$volume" --log-file="$lab/client.log" \
        --pid-file="$lab/client.pid" "$mount"
    await 30 "the volume is mounted" is_mounted
    await 30 "the mount answers" stat "$mount/."
    write_facts "mount=$mount" "brick1=$lab/node1/brick" "brick2=$lab/node2/brick" "brick3=$lab/node3/brick"
    note "$volume is mounted at $mount"
}

status() {
    if ! is_mounted; then fail "not mounted"; fi
    bricks_online || fail "not every brick runs"
    cat "$lab/lab.env"
}

case $verb in
    up) up ;;
    status) status ;;
    cut | join | throttle) "$verb" "${@:3}" ;;
    down) down ;;
    *) fail "$verb: not one of up, status, cut, join, throttle, down" ;;
esac
