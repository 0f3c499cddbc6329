package explain

// setConditions are the types of an ApplicationSet's conditions that somebody
// has to act on. The others only say that all is well.
func setConditions() []Topic {
	return []Topic{
		{
			"DeletionHeld", "a deletion waits for consent", "The generators of an ApplicationSet no longer list many of its applications. They stay until a person consents.",
			[]string{"a folder, a label or a filter was changed", "a Git host or a repository answers with less than before", "the applications are really meant to go"},
			[]string{"`capstan appset get NAME` lists the applications", "if they are meant to go: `capstan appset approve NAME`", "else repair what the generators read; the condition ends by itself"},
		},
		{
			"ErrorOccurred", "an ApplicationSet cannot make its applications", "A generator failed, or an application of it is not valid. Nothing is deleted because of it.",
			[]string{"a repository or a Git host cannot be reached, or refuses the credential", "a template uses a parameter that there is not", "two parameter sets give the same name", "the project or the cluster of an application does not exist"},
			[]string{"read the message: it names the generator or the application", "`capstan appset generate FILE` shows what a changed set would make", "`capstan appset refresh NAME` tries it again"},
		},
		{
			"InvalidRolloutConfig", "the steps of a rollout cannot be used", "An ApplicationSet has steps that contradict each other, so that nothing is rolled out.",
			[]string{"two steps select the same application", "an operator is neither In nor NotIn", "maxUpdate is neither a number nor a percentage"},
			[]string{"change the steps that the message names"},
		},
	}
}
