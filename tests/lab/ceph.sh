#!/usr/bin/env bash
# A real Ceph for the tests: a monitor, a manager and three BlueStore OSDs, each OSD in its own network namespace, and a
# pool with three copies. It does not touch the machine's own Ceph.
#
#   ceph.sh up DIR          creates it (replaces a partial one); writes its addresses and paths to DIR/lab.env
#   ceph.sh kill DIR OSD    kills an OSD (0, 1 or 2)
#   ceph.sh start DIR OSD   restarts it
#   ceph.sh cut | join | throttle DIR NODE [RATE]   changes the link of a node (1, 2 or 3), see common.sh
#   ceph.sh down DIR        ends its daemons, removes namespaces, links and DIR
#
# Needs root, and the Debian packages ceph-mon, ceph-mgr, ceph-osd, ceph-common, iproute2. BM_LAB_TAG and BM_LAB_NET
# (default bc and 10.94.8) separate two labs; BM_LAB_OSD_GIB (default 3) is the size of each OSD, a sparse file. DIR
# must be short: the path of a Unix socket has at most 108 bytes.
set -euo pipefail

verb=${1:?"up, kill, start, cut, join, throttle or down"}
lab=$(realpath -m "${2:?"a directory for the lab"}")
osd=${3:-}
name=ceph
tag=${BM_LAB_TAG:-bc}
net=${BM_LAB_NET:-10.94.8}
conf=$lab/ceph.conf
# shellcheck source=tests/lab/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ceph_cli() { timeout 30 ceph -c "$conf" --connect-timeout 15 "$@"; }

osds_up() { ceph_cli osd stat -f json | grep -q '"num_up_osds":3'; }
all_clean() { ceph_cli pg stat | grep -Eq '^([0-9]+) pgs: \1 active\+clean;'; }

# Stores are sparse files. The minimum memory of BlueStore's automatic tuning is too much for a test.
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
bluestore block size = $((${BM_LAB_OSD_GIB:-3} << 30))
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
    on_node "$((number + 1))" ceph-osd -c "$conf" -i "$number" >> "$lab/log/osd.$number.start" 2>&1
}

up() {
    local number uuid fsid
    needs "ceph-mon ceph-mgr ceph-osd ceph-common" ceph-mon ceph-mgr ceph-osd ceph
    make_nodes
    mkdir -p "$lab"/{log,run,crash,mon.a,mgr.x,osd.0,osd.1,osd.2}
    write_conf
    make_keyring
    fsid=$(awk '/^fsid/ {print $3}' "$conf")
    monmaptool --create --fsid "$fsid" --addv a "[v2:$net.1:3300,v1:$net.1:6789]" "$lab/monmap" > /dev/null
    ceph-mon -c "$conf" --mkfs -i a --monmap "$lab/monmap" --keyring "$lab/keyring"
    on_node 1 ceph-mon -c "$conf" -i a
    await 30 "the monitor answers" ceph_cli mon stat
    on_node 1 ceph-mgr -c "$conf" -i x
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
    write_facts "conf=$conf" "keyring=$lab/keyring"
}

case $verb in
    up) up ;;
    kill) kill -9 "$(cat "$lab/run/osd.${osd:?"the number of an OSD"}.pid")" ;;
    start) start_osd "${osd:?"the number of an OSD"}" ;;
    cut | join | throttle) "$verb" "${@:3}" ;;
    down) down ;;
    *) fail "$verb: not one of up, kill, start, cut, join, throttle, down" ;;
esac
