#!/usr/bin/env bash
# A real Ceph for the tests: a monitor, a manager and three BlueStore OSDs, each OSD in a network namespace of its own, and
# a pool with three copies. Nothing of the machine's own Ceph is touched.
#
#   ceph.sh up DIR          makes it (again, if half of one is there); writes what is where to DIR/lab.env
#   ceph.sh kill DIR OSD    ends an OSD at once (0, 1 or 2)
#   ceph.sh start DIR OSD   starts it again
#   ceph.sh down DIR        ends its daemons, removes namespaces, links and DIR
#
# Needs root, and the Debian packages ceph-mon, ceph-mgr, ceph-osd, ceph-common, iproute2. BM_LAB_TAG and BM_LAB_NET
# (default bc and 10.94.8) keep two labs apart. DIR must be short: a Unix socket below it has 108 bytes at most.
set -euo pipefail

verb=${1:?"up, kill, start or down"}
lab=$(realpath -m "${2:?"a directory for the lab"}")
osd=${3:-}
tag=${BM_LAB_TAG:-bc}
net=${BM_LAB_NET:-10.94.8}
conf=$lab/ceph.conf
mark=$lab/.benchmesh-lab

note() { printf 'ceph lab: %s\n' "$*" >&2; }
fail() { note "$*"; exit 1; }
ceph_cli() { timeout 30 ceph -c "$conf" --connect-timeout 15 "$@"; }

# await SECONDS WHAT COMMAND...: until the command succeeds.
await() {
    local seconds=$1 what=$2
    shift 2
    local deadline=$((SECONDS + seconds))
    until "$@" &> "$lab/await.log"; do
        if ((SECONDS >= deadline)); then
            cat "$lab/await.log" >&2
            fail "$what: not within $seconds s; logs are in $lab/log"
        fi
        sleep 0.3
    done
}

osds_up() { ceph_cli osd stat -f json | grep -q '"num_up_osds":3'; }
all_clean() { ceph_cli pg stat | grep -Eq '^([0-9]+) pgs: \1 active\+clean;'; }

lab_pids() {
    local node
    for node in 1 2 3; do ip netns pids "$tag$node" 2> /dev/null || true; done
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

# Stores are sparse files. The memory that BlueStore's own tuning asks for at least is more than a test should take.
write_conf() {
    cat > "$conf" << END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon initial members = a
mon host = [v2:$net.1:3300,v1:$net.1:6789]
keyring = $lab/keyring
log file = $lab/log/\$name.log
pid file = $lab/run/\$name.pid
admin socket = $lab/run/\$name.asok
run dir = $lab/run
crash dir = $lab/crash
ms bind ipv6 = false
osd pool default size = 3
osd pool default min size = 2
osd pool default pg autoscale mode = off
mon allow pool delete = true
mon warn on insecure global id reclaim allowed = false
auth allow insecure global id reclaim = false
mon data avail warn = 3
mon data avail crit = 1
[mon]
mon data = $lab/mon.\$id
[mgr]
mgr data = $lab/mgr.\$id
mgr initial modules =
[osd]
osd data = $lab/osd.\$id
osd objectstore = bluestore
bluestore block size = $((3 << 30))
bluestore block create = true
bluestore block path =
bluestore block wal path =
bluestore block db path =
bluestore cache autotune = false
bluestore cache size = 96M
osd memory target = 939524096
END
    local number
    for number in 0 1 2; do
        printf '[osd.%d]\npublic addr = %s.%d\ncrush location = root=default host=node%d\n' \
            "$number" "$net" "$((number + 1))" "$((number + 1))" >> "$conf"
    done
}

make_keyring() {
    local ring=$lab/keyring number
    ceph-authtool --create-keyring "$ring" --gen-key -n mon. --cap mon 'allow *' > /dev/null
    ceph-authtool "$ring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    ceph-authtool "$ring" --gen-key -n client.reader --cap mon 'allow r' --cap osd 'allow r pool=bench'
    ceph-authtool "$ring" --gen-key -n mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *'
    for number in 0 1 2; do
        ceph-authtool "$ring" --gen-key -n "osd.$number" --cap mon 'allow profile osd' --cap osd 'allow *' \
            --cap mgr 'allow profile osd'
    done
    chmod 600 "$ring"
}

start_osd() {
    local number=$1
    ip netns exec "$tag$((number + 1))" ceph-osd -c "$conf" -i "$number" >> "$lab/log/osd.$number.start" 2>&1
}

up() {
    local program number uuid fsid
    for program in ceph-mon ceph-mgr ceph-osd ceph ip; do
        command -v "$program" > /dev/null || fail "no $program: install ceph-mon ceph-mgr ceph-osd ceph-common iproute2"
    done
    ((${#lab} < 60)) || fail "$lab is too long for the sockets below it"
    down
    mkdir -p "$lab"/{log,run,crash,mon.a,mgr.x,osd.0,osd.1,osd.2}
    touch "$mark"
    ip link add "${tag}br" type bridge
    ip addr add "$net.254/24" dev "${tag}br"
    ip link set "${tag}br" up
    for number in 1 2 3; do add_node "$number"; done
    write_conf
    make_keyring
    fsid=$(awk '/^fsid/ {print $3}' "$conf")
    monmaptool --create --fsid "$fsid" --addv a "[v2:$net.1:3300,v1:$net.1:6789]" "$lab/monmap" > /dev/null
    ceph-mon -c "$conf" --mkfs -i a --monmap "$lab/monmap" --keyring "$lab/keyring"
    ip netns exec "${tag}1" ceph-mon -c "$conf" -i a
    await 30 "the monitor answers" ceph_cli mon stat
    ip netns exec "${tag}1" ceph-mgr -c "$conf" -i x
    for number in 0 1 2; do
        uuid=$(cat /proc/sys/kernel/random/uuid)
        ceph_cli osd new "$uuid" "$number" > /dev/null
        ceph-osd -c "$conf" -i "$number" --mkfs --osd-uuid "$uuid" &> "$lab/log/osd.$number.mkfs"
        start_osd "$number"
    done
    await 60 "three OSDs are up" osds_up
    ceph_cli osd pool create bench 16 &> /dev/null
    ceph_cli osd pool application enable bench benchmesh &> /dev/null
    await 60 "all placement groups are clean" all_clean
    {
        echo "conf=$conf"
        echo "keyring=$lab/keyring"
        echo "host=$net.254"
        for number in 1 2 3; do echo "namespace$number=$tag$number"; done
    } > "$lab/lab.env"
}

down() {
    local node tries=0
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

case $verb in
    up) up ;;
    kill) kill -9 "$(cat "$lab/run/osd.${osd:?"the number of an OSD"}.pid")" ;;
    start) start_osd "${osd:?"the number of an OSD"}" ;;
    down) down ;;
    *) fail "$verb: not one of up, kill, start, down" ;;
esac
