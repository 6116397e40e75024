package admission

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"
)

// settings are what the plugins that can be configured were told.
type settings struct {
	security    podSecurity
	events      eventRateLimit
	images      *imagePolicy
	selectors   podNodeSelector
	tolerations tolerationRestriction
	limited     []limitedResource
	// webhooks are the kubeconfigs by which webhooks are told who calls, by plugin.
	webhooks map[string]string
}

// reader reads the configuration of one plugin. The text is YAML or JSON; folder is where relative paths begin.
type reader func(s *settings, c clock.Clock, text []byte, folder string) error

// readers are the plugins that can be configured.
var readers = map[string]reader{
	"EventRateLimit": func(s *settings, c clock.Clock, text []byte, _ string) error {
		var f eventLimitFile
		err := decode(text, &f, "Configuration", "eventratelimit.admission.k8s.io/v1alpha1")
		if err == nil {
			err = f.check()
		}
		s.events = newEventRateLimit(f, c)
		return err
	},
	"ImagePolicyWebhook": func(s *settings, _ clock.Clock, text []byte, folder string) error {
		var f struct {
			ImagePolicy imagePolicyFile `json:"imagePolicy"`
		}
		err := yaml.UnmarshalStrict(text, &f)
		if err == nil {
			err = f.ImagePolicy.settle()
		}
		if err != nil {
			return err
		}
		f.ImagePolicy.KubeConfigFile = beside(folder, f.ImagePolicy.KubeConfigFile)
		s.images, err = newImagePolicy(f.ImagePolicy)
		return err
	},
	"MutatingAdmissionWebhook":   webhookReader("MutatingAdmissionWebhook"),
	"ValidatingAdmissionWebhook": webhookReader("ValidatingAdmissionWebhook"),
	"PodNodeSelector": func(s *settings, _ clock.Clock, text []byte, _ string) error {
		var f nodeSelectorFile
		if err := yaml.UnmarshalStrict(text, &f); err != nil {
			return err
		}
		s.selectors = podNodeSelector{f.Selectors}
		return f.check()
	},
	"PodSecurity": func(s *settings, _ clock.Clock, text []byte, _ string) error {
		return s.security.configure(text)
	},
	"PodTolerationRestriction": func(s *settings, _ clock.Clock, text []byte, _ string) error {
		return decode(text, &s.tolerations.tolerationFile, "Configuration", "podtolerationrestriction.admission.k8s.io/v1alpha1")
	},
	"ResourceQuota": func(s *settings, _ clock.Clock, text []byte, _ string) error {
		var f quotaFile
		err := decode(text, &f, "ResourceQuotaConfiguration", "apiserver.config.k8s.io/v1", "resourcequota.admission.k8s.io/v1", "resourcequota.admission.k8s.io/v1beta1",
			"resourcequota.admission.k8s.io/v1alpha1")
		s.limited = f.LimitedResources
		return errors.Join(err, f.check())
	},
}

// webhookReader reads the configuration of one of the plugins that call webhooks (apiserver.config.k8s.io/v1 WebhookAdmissionConfiguration).
func webhookReader(name string) reader {
	return func(s *settings, _ clock.Clock, text []byte, _ string) error {
		var f struct {
			APIVersion     string `json:"apiVersion"`
			Kind           string `json:"kind"`
			KubeConfigFile string `json:"kubeConfigFile"`
		}
		if err := decode(text, &f, "WebhookAdmissionConfiguration", "apiserver.config.k8s.io/v1"); err != nil {
			return err
		}
		if !filepath.IsAbs(f.KubeConfigFile) {
			return fmt.Errorf("kubeConfigFile: %q must be an absolute path", f.KubeConfigFile)
		}
		if s.webhooks == nil {
			s.webhooks = map[string]string{}
		}
		s.webhooks[name] = f.KubeConfigFile
		return nil
	}
}

// WebhookKubeconfigs are the paths of the kubeconfigs by which webhooks are told who calls: of MutatingAdmissionWebhook and ValidatingAdmissionWebhook,
// as far as the configuration file has one.
func WebhookKubeconfigs(cfg Config) (map[string]string, error) {
	s, err := readSettings(cfg.withDefaults())
	return s.webhooks, err
}

// readSettings reads what the configuration file says. Without a file each plugin has its defaults.
func readSettings(cfg Config) (settings, error) {
	s := settings{security: newPodSecurity()}
	files, err := readFile(cfg.File)
	if err != nil {
		return s, err
	}
	for name, f := range files {
		if err := readers[name](&s, cfg.Clock, f.text, f.folder); err != nil {
			return s, fmt.Errorf("--admission-control-config-file %s: %s: %w", cfg.File, name, err)
		}
	}
	// Two plugins are nothing without a configuration.
	for _, name := range []string{"EventRateLimit", "ImagePolicyWebhook"} {
		if _, told := files[name]; !told && cfg.Choice.Runs(name, true) {
			return s, fmt.Errorf("--enable-admission-plugins: %s needs a configuration: give one with --admission-control-config-file", name)
		}
	}
	if cfg.Provision == nil && cfg.Choice.Runs("NamespaceAutoProvision", true) {
		return s, errNoProvision
	}
	return s, nil
}

// pluginText is one plugin's part of the configuration.
type pluginText struct {
	text   []byte
	folder string
}

// readFile takes apart an AdmissionConfiguration (apiserver.config.k8s.io/v1). A plugin that is not there or that has nothing to be configured is refused by name.
func readFile(path string) (map[string]pluginText, error) {
	if path == "" {
		return nil, nil
	}
	fault := func(err error) error { return fmt.Errorf("--admission-control-config-file %s: %w", path, err) }
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	var file apiserverv1.AdmissionConfiguration
	if err := decode(text, &file, "AdmissionConfiguration", "apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"); err != nil {
		return nil, fault(err)
	}
	out := map[string]pluginText{}
	for i, p := range file.Plugins {
		_, twice := out[p.Name]
		switch {
		case twice:
			return nil, fault(fmt.Errorf("plugins[%d]: %s is there twice", i, p.Name))
		case !slices.Contains(Names(), p.Name):
			return nil, fault(fmt.Errorf("plugins[%d].name: there is no plugin %q", i, p.Name))
		case p.Configuration == nil && p.Path == "":
			continue
		case readers[p.Name] == nil:
			return nil, fault(fmt.Errorf("plugins[%d]: %s has nothing to be configured", i, p.Name))
		}
		if out[p.Name], err = textOf(p, filepath.Dir(path)); err != nil {
			return nil, fault(fmt.Errorf("plugins[%d]: %w", i, err))
		}
	}
	return out, nil
}

// textOf is a plugin's configuration, from its own file if it has one.
func textOf(p apiserverv1.AdmissionPluginConfiguration, folder string) (pluginText, error) {
	if p.Configuration != nil {
		return pluginText{p.Configuration.Raw, folder}, nil
	}
	path := beside(folder, p.Path)
	text, err := os.ReadFile(path)
	return pluginText{text, filepath.Dir(path)}, err
}

func beside(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// decode reads a document strictly and checks of which kind it is.
func decode(text []byte, into any, kind string, versions ...string) error {
	var typed struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(text, &typed); err != nil {
		return err
	}
	if kind == "ResourceQuotaConfiguration" && typed.Kind == "Configuration" && typed.APIVersion != "apiserver.config.k8s.io/v1" {
		typed.Kind = kind // as the older group calls it
	}
	if typed.Kind != kind || !slices.Contains(versions, typed.APIVersion) {
		return fmt.Errorf("it is %s %s, not a %s of %s", typed.APIVersion, typed.Kind, kind, versions[0])
	}
	return yaml.UnmarshalStrict(text, into)
}

// quotaFile is the configuration of ResourceQuota.
type quotaFile struct {
	APIVersion       string            `json:"apiVersion"`
	Kind             string            `json:"kind"`
	LimitedResources []limitedResource `json:"limitedResources"`
}

// limitedResource is what may be used only where a quota bounds it.
type limitedResource struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Resource string `json:"resource"`
	// MatchContains are parts of names of what is used; MatchScopes are scopes that an object may be in. Either makes a rule.
	MatchContains []string                                   `json:"matchContains,omitempty"`
	MatchScopes   []corev1.ScopedResourceSelectorRequirement `json:"matchScopes,omitempty"`
}

func (f quotaFile) check() error {
	for i, l := range f.LimitedResources {
		if l.Resource == "" {
			return fmt.Errorf("limitedResources[%d].resource: must be given", i)
		}
	}
	return nil
}
