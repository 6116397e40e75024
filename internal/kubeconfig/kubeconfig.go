// Package kubeconfig writes the files by which kubectl and client-go find a cluster: a file of the cluster's own, and an entry in the
// user's file, which it merges in and takes out without touching the rest.
package kubeconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// Entry is a cluster and one user of it, under one name.
type Entry struct {
	Name   string // of the cluster, the user and the context
	Server string // https://host:port
	CA     []byte // PEM
	Cert   []byte // PEM
	Key    []byte // PEM
	Token  string
}

// Write makes path a kubeconfig with e alone, readable by its owner only.
func Write(path string, e Entry) error {
	config := api.NewConfig()
	e.into(config)
	config.CurrentContext = e.Name
	return save(path, config)
}

// Encode is a kubeconfig with e alone.
func Encode(e Entry) ([]byte, error) {
	config := api.NewConfig()
	e.into(config)
	config.CurrentContext = e.Name
	return clientcmd.Write(*config)
}

// Merge puts e into the kubeconfig at path, replacing an entry of the same name, and makes it the current context.
// A file that cannot be read is left as it is.
func Merge(path string, e Entry) error {
	config, err := load(path)
	if err != nil {
		return err
	}
	e.into(config)
	config.CurrentContext = e.Name
	return save(path, config)
}

// Remove takes the entry named name out of the kubeconfig at path, if it points to server. A missing file is no error.
func Remove(path, name, server string) error {
	config, err := load(path)
	if err != nil {
		return err
	}
	if cluster := config.Clusters[name]; cluster == nil || cluster.Server != server {
		return nil
	}
	delete(config.Clusters, name)
	delete(config.AuthInfos, name)
	delete(config.Contexts, name)
	if config.CurrentContext == name {
		config.CurrentContext = ""
	}
	if len(config.Clusters)+len(config.AuthInfos)+len(config.Contexts) == 0 {
		return os.Remove(path)
	}
	return save(path, config)
}

// UserFile is the file that kubectl reads: the first of KUBECONFIG, else ~/.kube/config.
func UserFile(env func(string) string) (string, error) {
	if first, _, _ := strings.Cut(env("KUBECONFIG"), string(os.PathListSeparator)); first != "" {
		return first, nil
	}
	home := env("HOME")
	if home == "" {
		return "", fmt.Errorf("HOME is not set, so there is no ~/.kube/config: give --write-kubeconfig FILE")
	}
	return filepath.Join(home, ".kube", "config"), nil
}

func (e Entry) into(config *api.Config) {
	config.Clusters[e.Name] = &api.Cluster{Server: e.Server, CertificateAuthorityData: e.CA}
	config.AuthInfos[e.Name] = &api.AuthInfo{ClientCertificateData: e.Cert, ClientKeyData: e.Key, Token: e.Token}
	config.Contexts[e.Name] = &api.Context{Cluster: e.Name, AuthInfo: e.Name}
}

func load(path string) (*api.Config, error) {
	config, err := clientcmd.LoadFromFile(path)
	if os.IsNotExist(err) {
		return api.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig %s: %w; mend or move it, or give --write-kubeconfig FILE", path, err)
	}
	return config, nil
}

// save replaces the file in one step, so that a crash leaves the old or the new.
func save(path string, config *api.Config) error {
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of the kubeconfig %s: %w", path, err)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("cannot write the kubeconfig %s: %w", path, err)
	}
	return os.Rename(tmp, path)
}

// Server is the address of the current context's cluster in the kubeconfig at path; empty if there is none.
func Server(path string) (string, error) {
	config, err := load(path)
	if err != nil {
		return "", err
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return "", nil
	}
	return config.Clusters[current.Cluster].Server, nil
}
