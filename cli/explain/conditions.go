package explain

// conditions are the types of an application's conditions.
func conditions() []Topic {
	return []Topic{
		{
			"AgentWarning", "the agent asks you to look", "The agent works, and has noticed something that a person should know.",
			[]string{"another program changes a field of an object again and again", "an object cannot be compared"},
			[]string{"read the message: it names the object, the fields and who changes them", "let Git leave the field out, or ignore it by ignoreDifferences"},
		},
		{
			"ComparisonError", "the desired state is not known", "The sources could not be resolved or rendered. What is deployed stays in force.",
			[]string{"the Git host cannot be reached, or refuses the credential", "the revision or the path does not exist", "a chart, a Kustomization or a manifest has a mistake"},
			[]string{"`capstan repo list` shows how the last fetch went", "render the source on your machine", "`capstan app refresh NAME --hard` tries it again"},
		},
		{
			"DeletionError", "a deletion does not come to its end", "The application is being deleted, and something holds that up.",
			[]string{"the agent of its cluster is not connected", "an object has a finalizer that nobody removes", "a hook of the deletion has failed"},
			[]string{"read the message: it names the object", "if the cluster no longer exists: `capstan app abandon NAME`"},
		},
		{
			"ExcludedResourceWarning", "a kind is excluded", "The application has objects of a kind that the settings exclude. They are not applied and not shown.",
			[]string{"resource.exclusions lists the kind, or resource.inclusions does not", "the kind is in the built-in list"},
			[]string{"change the settings, or take the objects out of Git"},
		},
		{
			"ImpureWarning", "a render is not the same each time", "A template uses random values or the time, so each render would differ.",
			[]string{"functions such as randAlphaNum, genCA or now in a chart"},
			[]string{"give the value explicitly", "create a Secret with such a value outside of the chart"},
		},
		{
			"InvalidSpecError", "the specification cannot be used", "The destination, the project or a source does not fit. Nothing new is deployed.",
			[]string{"the destination names no known cluster", "the project does not exist, or permits neither the source nor the destination", "two fields contradict each other"},
			[]string{"change the field that the message names", "`capstan project get NAME` shows what the project permits", "`capstan cluster list` shows the clusters"},
		},
		{
			"OrphanedResourceWarning", "objects that belong to nobody", "In the namespace of the application there are objects that no application manages.",
			[]string{"they were made by hand", "they are left over from something that was removed"},
			[]string{"add them to Git, delete them, or list them in orphanedResources.ignore of the project"},
		},
		{
			"RenderWarning", "a renderer warns", "The manifests were rendered, and the renderer has said something about them.",
			[]string{"a deprecated field of a Kustomization", "a value of a chart that has no effect"},
			[]string{"read the message, and change the source"},
		},
		{
			"SharedResourceWarning", "somebody else has the same object", "An object of the application is tracked or managed by something else, too.",
			[]string{"another application lists the same object, and keeps it", "Argo CD in the cluster still tracks it"},
			[]string{"let one of the two leave the object out", "turn off automation in Argo CD, and take its finalizer off", "the sync option Adopt=true takes an object over"},
		},
		{
			"SyncError", "automation has stopped", "An automated operation has failed, and all its retries were used up.",
			[]string{"the API server refused an object", "a hook has failed", "objects were not healthy in time"},
			[]string{"`capstan app get NAME` shows the result of each object", "repair the cause in Git: a new revision is tried by itself", "`capstan app sync NAME` tries it again"},
		},
	}
}
