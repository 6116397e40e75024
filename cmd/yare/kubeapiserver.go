package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/server"
)

// kubeAPIServerCommand is the API server alone under kube-apiserver's name and with its flags, for programs that start one: envtest, or a test
// of somebody's own. State is in memory and goes with the process.
//
// A flag that Yare has works. One that changes nothing for a client is taken, and logged. Any other is refused with the reason, so that nobody believes
// to have set what was not.
func kubeAPIServerCommand() *cobra.Command {
	f := &flags{}
	var certDir, verbosity string
	var etcd []string
	command := &cobra.Command{
		Use:   "kube-apiserver",
		Short: "Yare's API server with kube-apiserver's flags; state is in memory",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			f.store, f.logLevel = string(server.Memory), logLevelOf(verbosity)
			f.config.APIOnly = true
			if err := useCertDir(&f.config.Keys, certDir); err != nil {
				return err
			}
			config, err := f.resolve()
			if err != nil {
				return err
			}
			if err := judgeFlags(command.Flags(), config.Log); err != nil {
				return err
			}
			if err := checkEtcd(command.Context(), etcd); err != nil {
				return err
			}
			cluster, err := server.Start(command.Context(), config)
			if err != nil {
				return err
			}
			return cluster.Wait(command.Context())
		},
	}
	set := command.Flags()
	all := pflag.NewFlagSet("yare", pflag.ContinueOnError)
	f.add(all)
	f.config.DataDir = "" // nothing on disk
	all.VisitAll(func(flag *pflag.Flag) {
		if rule, theirs := kubeAPIServerFlags[flag.Name]; theirs && !rule.here || slices.Contains(ownFlags, flag.Name) {
			set.AddFlag(flag)
		}
	})
	set.IntVar(&f.config.HTTPSPort, "secure-port", 6443, "port of the API server")
	set.StringVar(&f.service, "service-cluster-ip-range", "10.0.0.0/24", "addresses for Services")
	set.StringSliceVar(&etcd, "etcd-servers", nil, "URL of Yare's stand-in for etcd; state is in this process")
	set.StringVar(&certDir, "cert-dir", "", "folder of apiserver.crt and apiserver.key, made if they are missing; unless --tls-cert-file is given")
	set.StringVarP(&verbosity, "v", "v", "0", "how much to log: 2 is info, 4 debug")
	for name, rule := range kubeAPIServerFlags {
		if set.Lookup(name) != nil {
			continue
		}
		flag := set.VarPF(&text{}, name, "", rule.help())
		if rule.boolean {
			flag.NoOptDefVal = "true"
		}
	}
	return command
}

// text is a flag that is looked at as it was given, more than once perhaps.
type text struct{ values []string }

func (t *text) Set(value string) error { t.values = append(t.values, value); return nil }
func (t *text) String() string         { return strings.Join(t.values, ",") }
func (t *text) Type() string           { return "string" }

// judgeFlags refuses what was given and cannot be had, all of it at once.
func judgeFlags(set *pflag.FlagSet, log *slog.Logger) error {
	var faults []error
	set.Visit(func(flag *pflag.Flag) {
		t, judged := flag.Value.(*text)
		if !judged {
			return
		}
		for _, value := range t.values {
			if err := kubeAPIServerFlags[flag.Name].judge(value); err != nil {
				faults = append(faults, fmt.Errorf("--%s=%s: %w", flag.Name, value, err))
			} else {
				log.Info("a flag of kube-apiserver changes nothing here", "flag", flag.Name, "value", value)
			}
		}
	})
	return errors.Join(faults...)
}

// logLevelOf turns klog's verbosity into a level.
func logLevelOf(verbosity string) string {
	switch v, _ := strconv.Atoi(verbosity); {
	case v >= 4:
		return "debug"
	case v >= 2:
		return "info"
	}
	return "warn"
}

// useCertDir takes the server's certificate from the folder where kube-apiserver keeps it, and makes one if there is none.
func useCertDir(k *server.Keys, dir string) error {
	if dir == "" || k.TLSCertFile != "" || k.TLSPrivateKeyFile != "" {
		return nil
	}
	k.TLSCertFile, k.TLSPrivateKeyFile = filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key")
	if _, err := os.Stat(k.TLSCertFile); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	keys, err := pki.Open(pki.Config{})
	if err != nil {
		return err
	}
	cert, key, err := keys.Cluster.Pair(pki.APIServer("cluster.local", nil, nil))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	return errors.Join(pki.WriteFile(k.TLSCertFile, append(cert, keys.Cluster.CertPEM()...), 0o644), pki.WriteFile(k.TLSPrivateKeyFile, key, 0o600))
}

// checkEtcd makes sure that nobody counts on an etcd of theirs being read or written.
func checkEtcd(ctx context.Context, urls []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, url := range urls {
		if err := isStandIn(ctx, url); err != nil {
			return fmt.Errorf("--etcd-servers %s: %w; this API server keeps its state in memory, and takes for etcd only Yare's stand-in (a link to yare named etcd, see `yare envtest`)", url, err)
		}
	}
	return nil
}

func isStandIn(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/version", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct {
		Server string `json:"etcdserver"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(&answer); err != nil {
		return fmt.Errorf("not etcd: %w", err)
	}
	if answer.Server != etcdVersion {
		return fmt.Errorf("this is etcd %q", answer.Server)
	}
	return nil
}
