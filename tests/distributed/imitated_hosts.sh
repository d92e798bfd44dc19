# Hosts that are network namespaces of this machine, joined by a bridge in another namespace. Sourced; needs root and
# ip.
#
#   make_hosts N                  hosts 10.77.0.1 .. N, named node1 .. nodeN
#   on_hosts RANKS_EACH command   mpirun on all of them, started on the first; ended after $hosts_limit seconds, if set
#   cut_host K, join_host K       take down and restore the network link of host K
#   remove_hosts                  ends what still runs on them, and removes them
hosts_prefix=lst$$
hosts_count=0

can_make_hosts() { [ "$(id -u)" = 0 ] && command -v ip >/dev/null && ip netns add "$hosts_prefix-try" 2>/dev/null && ip netns delete "$hosts_prefix-try"; }

make_hosts() {
  hosts_count=$1
  hosts_switch=$hosts_prefix-s
  ip netns add "$hosts_switch"
  ip -n "$hosts_switch" link add bridge type bridge
  ip -n "$hosts_switch" link set bridge up
  local k
  for k in $(seq "$1"); do
    ip netns add "$hosts_prefix-$k"
    ip -n "$hosts_prefix-$k" link set lo up
    ip -n "$hosts_prefix-$k" link add eth0 type veth peer name "port$k" netns "$hosts_switch"
    ip -n "$hosts_prefix-$k" address add "10.77.0.$k/24" dev eth0
    ip -n "$hosts_prefix-$k" link set eth0 up
    ip -n "$hosts_switch" link set "port$k" master bridge
    ip -n "$hosts_switch" link set "port$k" up
  done
  # mpirun's agent for another host, in place of ssh: agent [options] ADDRESS command
  cat >agent.sh <<A
#!/usr/bin/env bash
while [ "\${1#-}" != "\$1" ]; do shift; done
k=\${1##*.}
shift
exec ip netns exec "$hosts_prefix-\$k" unshare --uts bash -c "hostname node\$k; \$*"
A
  chmod +x agent.sh
}

# `plm rsh`: some machines without ssh set OMPI_MCA_plm=isolated, with which mpirun starts nothing on other hosts.
on_hosts() { # in the first host's namespace; fills one host with ranks after another
  local each=$1 k list=
  shift
  for k in $(seq "$hosts_count"); do list=$list,10.77.0.$k:$each; done
  exec ${hosts_limit:+timeout -k 5 "$hosts_limit"} ip netns exec "$hosts_prefix-1" unshare --uts bash -c 'hostname node1; exec "$@"' - \
    mpirun --bind-to none --map-by slot -n $((each * hosts_count)) -H "${list#,}" \
    --mca plm rsh --mca plm_rsh_agent "$PWD/agent.sh" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
    --mca oob_tcp_if_include 10.77.0.0/24 "$@"
}

cut_host() { ip -n "$hosts_switch" link set "port$1" down; }
join_host() { ip -n "$hosts_switch" link set "port$1" up; }
processes_of_host() { ip netns pids "$hosts_prefix-$1" 2>/dev/null || true; }

remove_hosts() {
  local k p
  for k in $(seq "$hosts_count"); do
    for p in $(processes_of_host "$k"); do kill -9 "$p" 2>/dev/null || true; done
    ip netns delete "$hosts_prefix-$k" 2>/dev/null || true
  done
  [ "$hosts_count" = 0 ] || ip netns delete "$hosts_switch" 2>/dev/null || true
}
