package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// envtestNames are the programs that controller-runtime's envtest looks for in KUBEBUILDER_ASSETS.
var envtestNames = []string{"kube-apiserver", "etcd", "kubectl"}

func envtestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "envtest DIR",
		Short: "Make DIR a KUBEBUILDER_ASSETS folder, so that suites which use envtest run on Yare",
		Long: "Makes DIR a folder with links named " + strings.Join(envtestNames, ", ") + " to this program, as controller-runtime's envtest wants it, and prints the\n" +
			"line that tells envtest of it:\n\n  eval \"$(yare envtest ~/.cache/yare-envtest)\" && go test ./...",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			dir, err := linkPrograms(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "export KUBEBUILDER_ASSETS='%s'\n", strings.ReplaceAll(dir, "'", `'\''`))
			return err
		},
	}
}

// linkPrograms makes the links in dir, replacing links that were there, and returns dir in full. Files that are no links are not touched.
func linkPrograms(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("where this program is: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range envtestNames {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			return "", fmt.Errorf("%s is there already and is no link: remove it, or give another folder", path)
		default:
			if err := os.Remove(path); err != nil {
				return "", err
			}
		}
		if err := os.Symlink(self, path); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// etcdVersion is what the stand-in answers at /version, by which kube-apiserver's stand-in knows it.
const etcdVersion = "yare"

// etcdCommand stands in for etcd where somebody starts one beside an API server, as envtest does. It keeps nothing: the API server, which is Yare
// too, holds the state. It listens where it is told, and says that it is healthy.
func etcdCommand() *cobra.Command {
	var clients []string
	command := &cobra.Command{
		Use:   "etcd",
		Short: "Stands in for etcd beside Yare's kube-apiserver, which holds the state itself, in memory",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			var listeners []net.Listener
			for _, text := range clients {
				l, err := listenURL(text)
				if err != nil {
					return errors.Join(err, closeAll(listeners))
				}
				listeners = append(listeners, l)
			}
			server := &http.Server{Handler: etcdHandler(), ReadHeaderTimeout: 10 * time.Second}
			var group errgroup.Group
			for _, l := range listeners {
				group.Go(func() error { return server.Serve(l) })
			}
			stop := make(chan error, 1)
			go func() {
				<-command.Context().Done()
				stop <- server.Close()
			}()
			if err := group.Wait(); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return <-stop
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringSliceVar(&clients, "listen-client-urls", []string{"http://localhost:2379"}, "where to answer /health")
	for _, name := range []string{"advertise-client-urls", "listen-peer-urls", "initial-advertise-peer-urls", "initial-cluster", "name", "data-dir", "log-level", "log-outputs",
		"quota-backend-bytes", "auto-compaction-mode", "auto-compaction-retention", "snapshot-count", "max-request-bytes"} {
		set.String(name, "", "taken and not used: nothing is kept here")
	}
	set.Bool("unsafe-no-fsync", false, "taken and not used: nothing is kept here")
	return command
}

func etcdHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]string{"health": "true", "reason": ""})
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]string{"etcdserver": etcdVersion, "etcdcluster": etcdVersion})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this stands in for etcd beside Yare's API server and keeps nothing: read and write through the API server", http.StatusNotImplemented)
	})
	return mux
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func listenURL(text string) (net.Listener, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--listen-client-urls: %w", err)
	}
	if u.Scheme != "http" {
		return nil, fmt.Errorf("--listen-client-urls %q: give an http:// URL: what stands in for etcd has no certificates", text)
	}
	return net.Listen("tcp", u.Host)
}

func closeAll(listeners []net.Listener) error {
	var faults []error
	for _, l := range listeners {
		faults = append(faults, l.Close())
	}
	return errors.Join(faults...)
}
