package runtime

import (
	"bytes"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"text/template"
)

// daemonConfig renders containerd's configuration file (format 4, containerd
// 2.4). Whatever is not named keeps containerd's default.
func daemonConfig(c Config, p paths, s settings) ([]byte, error) {
	bin, err := filepath.Abs(c.BinDir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = daemonTemplate.Execute(&b, map[string]any{
		"Root": p.root, "State": p.state, "Socket": p.socket, "Temp": filepath.Join(p.state, "tmp"), "Shims": p.shims,
		"Snapshotter": s.snapshotter, "RestrictOOM": s.restrictOOM,
		"Certs": p.certs, "Pause": PauseImage, "Platform": "linux/" + goruntime.GOARCH,
		"CNIBin": bin, "CNIConf": p.cniConf,
		"Shim": filepath.Join(bin, "containerd-shim-runc-v2"), "Runc": filepath.Join(bin, "runc"), "RuncRoot": filepath.Join(p.state, "runc"),
		"Opt": filepath.Join(p.root, "opt"),
	})
	return b.Bytes(), err
}

// oom_score 0 leaves the daemon's score alone: lowering it needs CAP_SYS_RESOURCE.
// NRI is off because its socket is one for the whole machine. Debug and metrics
// addresses stay empty. The streaming server answers on loopback, to URLs
// that carry a single-use token.
var daemonTemplate = template.Must(template.New("containerd.toml").Funcs(template.FuncMap{"q": strconv.Quote}).Parse(`version = 4
root = {{q .Root}}
state = {{q .State}}
temp = {{q .Temp}}
oom_score = 0

[plugins."io.containerd.server.v1.grpc"]
  address = {{q .Socket}}
[plugins."io.containerd.server.v1.ttrpc"]
  address = {{q (print .Socket ".ttrpc")}}
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = {{q .Shims}}
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.internal.v1.opt"]
  path = {{q .Opt}}
[plugins."io.containerd.service.v1.diff-service"]
  default = ["walking"]
[plugins."io.containerd.transfer.v1.local"]
  config_path = {{q .Certs}}
  [[plugins."io.containerd.transfer.v1.local".unpack_config]]
    platform = {{q .Platform}}
    snapshotter = {{q .Snapshotter}}
    differ = "walking"

[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = {{q .Snapshotter}}
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = {{q .Pause}}
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = {{q .Certs}}

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  max_container_log_line_size = 16384
  drain_exec_sync_io_timeout = "0s"
  stats_collect_period = "10s"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{{q .CNIBin}}]
    conf_dir = {{q .CNIConf}}
    max_conf_num = 1
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      runtime_path = {{q .Shim}}
      sandboxer = "podsandbox"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = {{q .Runc}}
        Root = {{q .RuncRoot}}
        SystemdCgroup = false
`))
