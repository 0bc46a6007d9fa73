# Common parts of the labs: three nodes, each a network namespace on one bridge, and the processes in them. Source it
# after setting `lab` (the lab's directory), `name`, `tag` and `net`. A lab defines a function `lab_clients` for its
# processes outside the nodes, and `unmount` if it mounts something. Its link commands are the functions below:
#
#   cut DIR NODE            takes the link of a node down (1, 2 or 3)
#   join DIR NODE           takes it up again
#   throttle DIR NODE RATE  limits the traffic to the node, such as 100mbit
# shellcheck shell=bash

mark=$lab/.benchmesh-lab

note() { printf '%s lab: %s\n' "$name" "$*" >&2; }
fail() { note "$*"; exit 1; }

# await SECONDS WHAT COMMAND...: waits until the command succeeds.
await() {
    local seconds=$1 what=$2
    shift 2
    local deadline=$((SECONDS + seconds))
    until "$@" &> "$lab/await.log"; do
        if ((SECONDS >= deadline)); then
            cat "$lab/await.log" >&2
            fail "$what: not within $seconds s; logs are in $lab"
        fi
        sleep 0.2
    done
}

# needs PACKAGES PROGRAM...: checks that the programs exist; PACKAGES contain them.
needs() {
    local packages=$1 program
    shift
    for program in "$@" ip; do
        command -v "$program" > /dev/null || fail "no $program: install $packages and iproute2"
    done
    # The path of a Unix socket below it has at most 108 bytes.
    ((${#lab} < 60)) || fail "$lab is too long for the sockets below it"
}

lab_clients() { :; }
unmount() { :; }

lab_pids() {
    local node
    for node in 1 2 3; do ip netns pids "$tag$node" 2> /dev/null || true; done
    lab_clients
}

end_processes() {
    local signal=$1 pids
    pids=$(lab_pids)
    # shellcheck disable=SC2086 # one word per pid
    [ -z "$pids" ] || kill "-$signal" $pids 2> /dev/null || true
}

# Creates the directory and the three nodes from scratch. Nodes are NET.1 to NET.3, the host is NET.254.
make_nodes() {
    local node
    down
    mkdir -p "$lab"
    touch "$mark"
    ip link add "${tag}br" type bridge
    ip addr add "$net.254/24" dev "${tag}br"
    ip link set "${tag}br" up
    for node in 1 2 3; do
        ip netns add "$tag$node"
        ip link add "${tag}v$node" type veth peer name eth0 netns "$tag$node"
        ip link set "${tag}v$node" master "${tag}br" up
        ip -n "$tag$node" addr add "$net.$node/24" dev eth0
        ip -n "$tag$node" link set eth0 up
        ip -n "$tag$node" link set lo up
    done
}

on_node() {
    local node=$1
    shift
    ip netns exec "$tag$node" "$@"
}

# cut NODE, join NODE, throttle NODE RATE
cut() { ip link set "$(link_of "$@")" down; }
join() { ip link set "$(link_of "$@")" up; }
throttle() {
    tc qdisc replace dev "$(link_of "$@")" root tbf rate "${2:?"a rate, such as 100mbit"}" burst 256kb latency 50ms
}
link_of() { echo "${tag}v${1:?"the number of a node"}"; }

# Writes addresses and paths for tests, as lines KEY=VALUE.
write_facts() {
    local node
    {
        echo "host=$net.254"
        for node in 1 2 3; do echo "namespace$node=$tag$node"; done
        printf '%s\n' "$@"
    } > "$lab/lab.env"
}

down() {
    local node tries=0
    unmount
    end_processes TERM
    while [ -n "$(lab_pids)" ] && ((tries++ < 25)); do sleep 0.2; done
    end_processes KILL
    for node in 1 2 3; do
        ip link del "${tag}v$node" 2> /dev/null || true
        ip netns del "$tag$node" 2> /dev/null || true
    done
    ip link del "${tag}br" 2> /dev/null || true
    # Only what this script created.
    if [ -e "$mark" ]; then rm -rf --one-file-system "$lab"; fi
}
