package launch

import (
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The limits of a resolv.conf, as Kubernetes documents them ("DNS for Services and Pods").
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// dns answers a pod's resolv.conf by its dnsPolicy and dnsConfig.
func (b *Builder) dns(pod *corev1.Pod) (*runtimeapi.DNSConfig, error) {
	host, err := b.hostDNS()
	if err != nil {
		return nil, err
	}
	config := host
	policy := pod.Spec.DNSPolicy
	cluster := policy == corev1.DNSClusterFirstWithHostNet || policy != corev1.DNSDefault && policy != corev1.DNSNone && !pod.Spec.HostNetwork
	switch {
	case policy == corev1.DNSNone:
		config = &runtimeapi.DNSConfig{}
	case cluster && len(b.ClusterDNS) > 0:
		domain := b.ClusterDomain
		searches := []string{pod.Namespace + ".svc." + domain, "svc." + domain, domain}
		config = &runtimeapi.DNSConfig{Servers: b.ClusterDNS, Searches: append(searches, host.Searches...), Options: []string{"ndots:5"}}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		config.Servers = slices.Concat(config.Servers, c.Nameservers)
		config.Searches = slices.Concat(config.Searches, c.Searches)
		config.Options = mergeOptions(config.Options, c.Options)
	}
	config.Servers = limit(unique(config.Servers), maxNameservers)
	config.Searches = limitSearches(unique(config.Searches))
	return config, nil
}

func (b *Builder) hostDNS() (*runtimeapi.DNSConfig, error) {
	if b.ResolvConf == "" {
		return &runtimeapi.DNSConfig{}, nil
	}
	content, err := os.ReadFile(b.ResolvConf)
	if err != nil {
		return nil, fmt.Errorf("the host's DNS settings: %w", err)
	}
	return parseResolvConf(string(content)), nil
}

func parseResolvConf(content string) *runtimeapi.DNSConfig {
	c := &runtimeapi.DNSConfig{}
	for _, line := range strings.Split(content, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) > 1 {
				c.Servers = append(c.Servers, fields[1])
			}
		case "search", "domain":
			c.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					c.Searches = append(c.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			c.Options = append(c.Options, fields[1:]...)
		}
	}
	return c
}

// mergeOptions adds options; one of the same name replaces the earlier.
func mergeOptions(have []string, more []corev1.PodDNSConfigOption) []string {
	out := slices.Clone(have)
	for _, o := range more {
		word := o.Name
		if o.Value != nil && *o.Value != "" {
			word += ":" + *o.Value
		}
		at := slices.IndexFunc(out, func(h string) bool { name, _, _ := strings.Cut(h, ":"); return name == o.Name })
		if at >= 0 {
			out[at] = word
		} else {
			out = append(out, word)
		}
	}
	return out
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func limit(list []string, n int) []string { return list[:min(n, len(list))] }

func limitSearches(list []string) []string {
	list = limit(list, maxSearches)
	for len(strings.Join(list, " ")) > maxSearchChars {
		list = list[:len(list)-1]
	}
	return list
}

// Hosts answers the content of a pod's /etc/hosts.
func (b *Builder) Hosts(pod *corev1.Pod, podIPs []string) ([]byte, error) {
	var s strings.Builder
	if pod.Spec.HostNetwork {
		content, err := os.ReadFile("/etc/hosts")
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		s.WriteString("# Kubernetes-managed hosts file (host network).\n")
		s.Write(content)
	} else {
		name, domain := b.Hostname(pod)
		s.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		for _, ip := range podIPs {
			if domain != "" {
				fmt.Fprintf(&s, "%s\t%s.%s\t%s\n", ip, name, domain, name)
			} else {
				fmt.Fprintf(&s, "%s\t%s\n", ip, name)
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		s.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, a := range pod.Spec.HostAliases {
		fmt.Fprintf(&s, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return []byte(s.String()), nil
}
