#!/usr/bin/env bash
# A real NFS-Ganesha for the tests: an NFSv4 server in the first of three network namespaces, with one exported
# directory. Nothing is mounted, because that needs the kernel's client: libnfs reads the export (nfs-cat). libnfs 4.0
# cannot write over NFSv4.
#
#   ganesha.sh up DIR          creates it (replaces a partial one); writes its addresses and paths to DIR/lab.env
#   ganesha.sh kill DIR        kills the server
#   ganesha.sh start DIR       restarts it
#   ganesha.sh cut | join | throttle DIR NODE [RATE]   changes the link of a node, see common.sh
#   ganesha.sh down DIR        ends the server, removes namespaces, links and DIR
#
# Needs root and the Debian packages nfs-ganesha, nfs-ganesha-vfs, libnfs-utils, iproute2. BM_LAB_TAG and BM_LAB_NET
# (default bn and 10.94.11) separate two labs.
set -euo pipefail

verb=${1:?"up, kill, start, cut, join, throttle or down"}
lab=$(realpath -m "${2:?"a directory for the lab"}")
name=ganesha
tag=${BM_LAB_TAG:-bn}
net=${BM_LAB_NET:-10.94.11}
url="nfs://$net.1/export/file?version=4&uid=0&gid=0"
# shellcheck source=tests/lab/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

answers() { [ "$(timeout 5 nfs-cat "$url" | head -c 4)" = head ]; }

write_config() {
    mkdir -p "$lab/export" "$lab/recovery"
    { printf head; head -c 100M /dev/zero; } > "$lab/export/file"
    cat > "$lab/ganesha.conf" << END
NFS_CORE_PARAM {
    Bind_addr = $net.1;
    NFS_Port = 2049;
    Protocols = 4;
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = false;
    mount_path_pseudo = true;
}
NFSv4 { Graceless = true; RecoveryRoot = $lab/recovery; Minor_Versions = 0, 1, 2; }
NFS_KRB5 { Active_krb5 = false; }
EXPORT_DEFAULTS {
    Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 4; Transports = TCP;
}
EXPORT { Export_Id = 1; Path = $lab/export; Pseudo = /export; FSAL { Name = VFS; } }
END
}

start_server() {
    on_node 1 ganesha.nfsd -f "$lab/ganesha.conf" -L "$lab/ganesha.log" -p "$lab/ganesha.pid" -N NIV_EVENT \
        >> "$lab/log" 2>&1 || fail "no server; see $lab/log and $lab/ganesha.log"
    await 20 "the server answers" answers
}

kill_server() {
    local pid
    for pid in $(ip netns pids "${tag}1"); do
        if [ "$(cat "/proc/$pid/comm")" = ganesha.nfsd ]; then kill -KILL "$pid"; fi
    done
    rm -f "$lab/ganesha.pid"
}

up() {
    needs "nfs-ganesha nfs-ganesha-vfs libnfs-utils" ganesha.nfsd nfs-cat
    make_nodes
    write_config
    start_server
    write_facts "url=$url" "config=$lab/ganesha.conf" "pid=$(cat "$lab/ganesha.pid")"
    note "exports $url"
}

case $verb in
    up) up ;;
    kill) kill_server ;;
    start) start_server ;;
    cut | join | throttle) "$verb" "${@:3}" ;;
    down) down ;;
    *) fail "$verb: not one of up, kill, start, cut, join, throttle, down" ;;
esac
